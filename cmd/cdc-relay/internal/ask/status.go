package ask

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
)

const largestStatus = 16 << 20 // bytes; a status is a few kilobytes

// Reachable turns an address to listen on into one to connect to: all addresses means this machine.
func Reachable(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return listen
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return net.JoinHostPort(host, port)
}

// Status asks the process at the address for the status of the relay of that name, as JSON; "": of its only relay, or
// of all.
func Status(ctx context.Context, address, tokenFile, name string) ([]byte, error) {
	path := "/api/v1/status"
	if name != "" {
		path += "?relay=" + url.QueryEscape(name)
	}
	return get(ctx, address, tokenFile, path)
}

// get asks the relay at the address for JSON. It sends the token where there is one: an address that others reach asks
// for it.
func get(ctx context.Context, address, tokenFile, path string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		return nil, fmt.Errorf("ask the relay on %s: %w", address, err)
	}
	if tokenFile != "" {
		if token, err := os.ReadFile(tokenFile); err == nil { // without it the relay says what is missing
			request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
		}
	}
	// No proxy stands between this command and a relay, and none should get its token.
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if silent, is := errors.AsType[net.Error](err); is && silent.Timeout() {
		return nil, fmt.Errorf("%s does not answer: %w. If a relay runs there, it is frozen or its machine is overloaded: "+
			"look at its process before you start another; if it hangs, kill it: the next start continues where it stopped",
			address, err)
	}
	if err != nil {
		return nil, fmt.Errorf("no relay answers on %s: %w; start one with cdc-relay run, or give its address with "+
			"--http-listen", address, err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, largestStatus))
	if err != nil {
		return nil, fmt.Errorf("read the answer of %s: %w", address, err)
	}
	var refusal struct {
		Error string `json:"error"`
	}
	if response.StatusCode != http.StatusOK && json.Unmarshal(body, &refusal) == nil && refusal.Error != "" {
		return nil, fmt.Errorf("the relay on %s refused (%s): %s", address, response.Status, refusal.Error)
	}
	if response.StatusCode != http.StatusOK || !json.Valid(body) {
		return nil, fmt.Errorf("what listens on %s answered %s and not a relay's status; give the relay's address with "+
			"--http-listen", address, response.Status)
	}
	return body, nil
}
