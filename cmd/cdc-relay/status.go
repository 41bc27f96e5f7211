package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/relay"
)

type statusCommand struct {
	Watch   bool          `help:"Show it again every second, until Ctrl-C." env:"CDC_RELAY_STATUS_WATCH"`
	Timeout time.Duration `help:"How long the relay may take to answer." default:"5s" env:"CDC_RELAY_STATUS_TIMEOUT"`
}

func (statusCommand) Help() string {
	return "Asks the relay that listens on http.listen of this configuration. Exit code 1 when none answers.\n\nExample:\n\n  cdc-relay status --http-listen 127.0.0.1:9464 --watch"
}

const watchEvery = time.Second

const largestStatus = 16 << 20 // bytes; a status is a few kilobytes

// Run prints what the running relay says of itself.
func (c statusCommand) Run(a *app) error {
	a.positive("--timeout", c.Timeout)
	cfg, err := a.load(needsNothing)
	if err != nil {
		return err
	}
	ctx, stop := stoppable(context.Background(), func() {})
	defer stop()
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	for {
		err := c.show(ctx, a, reachable(cfg.HTTP.Listen), cfg.HTTP.TokenFile)
		if c.Watch && ctx.Err() != nil {
			return nil // a question that Ctrl-C cut short is no failure
		}
		if err != nil || !c.Watch {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// show asks once and prints the answer; on a terminal, watching, in the place of the one before.
func (c statusCommand) show(ctx context.Context, a *app, address, tokenFile string) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	body, err := fetchStatus(ctx, address, tokenFile)
	if err != nil {
		return err
	}
	if a.cli.JSON {
		return a.printJSON(json.RawMessage(body))
	}
	var st relay.Status
	if err := json.Unmarshal(body, &st); err != nil {
		return fmt.Errorf("read the status from %s: %w", address, err)
	}
	if c.Watch && isTerminal(a.out) {
		fmt.Fprint(a.out, "\x1b[H\x1b[2J")
	}
	a.printStatus(st, time.Now())
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

// fetchStatus sends the token where there is one: an address that others reach asks for it.
func fetchStatus(ctx context.Context, address, tokenFile string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/api/v1/status", nil)
	if err != nil {
		return nil, fmt.Errorf("ask for the status: %w", err)
	}
	if tokenFile != "" {
		if token, err := os.ReadFile(tokenFile); err == nil { // without it the relay says what is missing
			request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
		}
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("no relay answers on %s: %w; start one with cdc-relay run, or give its address with --http-listen", address, err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, largestStatus))
	if err != nil {
		return nil, fmt.Errorf("read the status from %s: %w", address, err)
	}
	var refusal struct {
		Error string `json:"error"`
	}
	if response.StatusCode != http.StatusOK && json.Unmarshal(body, &refusal) == nil && refusal.Error != "" {
		return nil, fmt.Errorf("the relay on %s refused (%s): %s", address, response.Status, refusal.Error)
	}
	if response.StatusCode != http.StatusOK || !json.Valid(body) {
		return nil, fmt.Errorf("what listens on %s answered %s and not a relay's status; give the relay's address with --http-listen", address, response.Status)
	}
	return body, nil
}

func (a *app) printStatus(st relay.Status, now time.Time) {
	line := func(name, format string, args ...any) {
		fmt.Fprintf(a.out, "%-14s %s\n", name, fmt.Sprintf(format, args...))
	}
	ready := a.paint(green, "ready")
	if !st.Ready {
		ready = a.paint(red, "not ready")
	}
	line("relay", "%s %s, up %s", st.Service, st.Version, now.Sub(st.Started).Round(time.Second))
	line("role", "%s for %s, %s", st.Role, now.Sub(st.Since).Round(time.Second), ready)
	for _, reason := range st.Reasons {
		line("", "%s", a.paint(red, reason))
	}
	if p := st.Paused; p != nil {
		line("paused", "%s", a.paint(yellow, fmt.Sprintf("by %s for %s%s", plain(p.By), now.Sub(p.Since).Round(time.Second), noteOf(p.Note))))
	}
	if st.Role == relay.RoleStandby {
		line("slot", "%s, held by another relay; ask that one for lag, rates and what is parked", st.Slot)
	} else {
		printFlow(st, line)
	}
	line("broker", "%s", st.Broker)
	for _, alarm := range st.Alarms {
		line("alarm", "%s", a.paint(red, fmt.Sprintf("%s ago, %d so far, topic %s partition %d: %s", now.Sub(alarm.At).Round(time.Second), alarm.Count, alarm.Topic, alarm.Partition, alarm.Text)))
	}
	if st.LookingUp {
		line("restart", "looking up what was published before")
	}
	if st.LastErrorAt != nil {
		over := ""
		if st.LastErrorOver {
			over = ", and it is over"
		}
		line("last error", "%s ago%s: %s", now.Sub(*st.LastErrorAt).Round(time.Second), over, plain(st.LastError))
	}
	if st.Halt != nil {
		line("halted", "%s: %s", a.paint(red, st.Halt.Code), st.Halt.Reason)
		line("at risk", "%s", st.Halt.Risk)
		line("to do", "%s", st.Halt.Remedy)
	}
}

// printFlow prints what the relay measures as the slot's holder; "-" is what it has not measured yet.
func printFlow(st relay.Status, line func(name, format string, args ...any)) {
	const unmeasured = "-"
	lag, rates := unmeasured, unmeasured
	if st.LagBytes != nil {
		lag = fmt.Sprintf("%s of WAL, oldest unconfirmed transaction %s ago, the slot keeps %s",
			figure(st.LagBytes, bytesOf), figure(st.LagSeconds, seconds), figure(st.RetainedWAL, bytesOf))
	}
	if r := st.Rates; r != nil {
		rates = fmt.Sprintf("%.1f events/s published, %.1f/s received, over the last %.0f s", r.Published, r.Received, r.Seconds)
	}
	line("slot", "%s, epoch %s, received %s, confirmed %s", st.Slot, figure(st.Epoch, whole), figure(st.ReceivedLSN, plain), figure(st.ConfirmedLSN, plain))
	line("lag", "%s", lag)
	line("rates", "%s", rates)
	line("backlog", "%s events, %d in flight (%s), %d sent and not yet journaled", figure(st.Backlog, whole), st.InFlight, bytesOf(int64(st.InFlightBytes)), st.Unrecorded)
	line("events", "%d received, %d settled", st.Received, st.Settled)
	line("parked keys", "%s, with %s events", figure(st.ParkedKeys, whole), figure(st.ParkedEvents, whole))
	line("dead letters", "%s", figure(st.DeadLetters, whole))
}

// figure is what is known in its form for people, "-" what is not.
func figure[T any](known *T, form func(T) string) string {
	if known == nil {
		return "-"
	}
	return form(*known)
}

func whole(n int64) string { return fmt.Sprint(n) }

func seconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(time.Millisecond).String()
}

// bytesOf is a size for people, in powers of 1024.
func bytesOf(n int64) string {
	size, unit := float64(n), "B"
	for _, larger := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if size < 1024 {
			break
		}
		size, unit = size/1024, larger
	}
	if unit == "B" {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", size, unit)
}
