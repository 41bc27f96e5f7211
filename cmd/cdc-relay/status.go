package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"
)

type statusCommand struct {
	Timeout time.Duration `help:"How long the relay may take to answer." default:"5s" env:"CDC_RELAY_STATUS_TIMEOUT"`
}

func (statusCommand) Help() string {
	return "Asks the relay that listens on http.listen of this configuration. Exit code 1 when none answers.\n\nExample:\n\n  cdc-relay status --http-listen 127.0.0.1:9464 --json"
}

const largestStatus = 16 << 20 // bytes; a status is a few kilobytes

// Run prints what the running relay says of itself.
func (c statusCommand) Run(a *app) error {
	cfg, err := a.load(needsNothing)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.Timeout)
	defer cancel()
	address := reachable(cfg.HTTP.Listen)
	body, err := fetchStatus(ctx, address)
	if err != nil {
		return err
	}
	if a.cli.JSON {
		return a.printJSON(json.RawMessage(body))
	}
	var facts map[string]any
	if err := json.Unmarshal(body, &facts); err != nil {
		return fmt.Errorf("read the status from %s: %w", address, err)
	}
	for _, line := range tree(facts, "") {
		fmt.Fprintln(a.out, line)
	}
	return nil
}

// reachable turns an address to listen on into one to connect to: all addresses means this machine.
func reachable(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return listen
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return net.JoinHostPort(host, port)
}

func fetchStatus(ctx context.Context, address string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/api/v1/status", nil)
	if err != nil {
		return nil, fmt.Errorf("ask for the status: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("no relay answers on %s: %w; start one with cdc-relay run, or give its address with --http-listen", address, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, largestStatus))
	if err != nil {
		return nil, fmt.Errorf("read the status from %s: %w", address, err)
	}
	if response.StatusCode != http.StatusOK || !json.Valid(body) {
		return nil, fmt.Errorf("what listens on %s answered %s and not a relay's status; give the relay's address with --http-listen", address, response.Status)
	}
	return body, nil
}

// tree lays a JSON object out as indented lines, sorted by name.
func tree(facts map[string]any, indent string) []string {
	var lines []string
	width := 0
	for name := range facts {
		width = max(width, len(name))
	}
	for _, name := range sortedNames(facts) {
		label := indent + name + strings.Repeat(" ", width-len(name)) + "  "
		switch v := facts[name].(type) {
		case map[string]any:
			lines = append(lines, indent+name)
			lines = append(lines, tree(v, indent+"  ")...)
		case string:
			lines = append(lines, label+v)
		default:
			text, _ := json.Marshal(v)
			lines = append(lines, label+string(text))
		}
	}
	return lines
}

// sortedNames are the keys of a map, for output that is the same each time.
func sortedNames[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
