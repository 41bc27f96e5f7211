package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/embedded"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// full is a pipe that takes nothing any more.
func full(t *testing.T) (read, write *os.File) {
	t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = read.Close(), write.Close() })
	if err := write.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := write.Write(make([]byte, 1<<20)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("fill a pipe: %v", err)
	}
	return read, write
}

// startUnread starts cdc-relay run with a log that the test does not read, on an address that it knows.
func startUnread(t *testing.T, s services, stdout, stderr *os.File, args ...string) *running {
	t.Helper()
	port, err := embedded.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", port)
	cmd, _, _ := command(context.Background(), t, s.environ, append([]string{"run", "--http-listen", address}, args...)...)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r := &running{cmd: cmd, address: address, done: make(chan error, 1), log: &strings.Builder{}}
	go func() { r.done <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return r
}

// Each row has a fate of the log's reader, and a signal after it. Breaks it catches: events, probes or a
// stop that wait for the reader of the log; a relay that dies of a reader that went away, or of a terminal that was
// closed; a drop that is not counted. Seen to fail with a logger that writes to standard error itself: nothing was
// journaled in the first two rows, the third died of SIGPIPE, and the last ended as killed by SIGHUP.
func TestRunDependsOnNoReaderOfItsLog(t *testing.T) {
	harness.Full(t)
	if signal.Ignored(syscall.SIGHUP) { // these tests run under nohup: a child would ignore it as well
		hangups := make(chan os.Signal, 1)
		signal.Notify(hangups, syscall.SIGHUP)
		defer signal.Stop(hangups)
	}
	s := newServices(t, orderTopic)
	cdcRelay(t, s.environ, "init").want(t, exitDone, nil, nil)
	all := 0
	for _, row := range []struct {
		name, format string
		leaves       bool
		signal       os.Signal
	}{
		{"a reader that has stopped", "json", false, syscall.SIGTERM},
		{"a reader that has stopped, on a console", "console", false, syscall.SIGINT},
		{"a reader that is gone", "json", true, syscall.SIGTERM},
		{"a terminal that closes", "json", true, syscall.SIGHUP},
	} {
		t.Run(row.name, func(t *testing.T) {
			read, write := full(t)
			// Standard output is the same pipe, as in a container.
			r := startUnread(t, s, write, write, "--log-level", "debug", "--log-format", row.format)
			r.awaitStatus(t, `"role": "active"`)
			if row.leaves {
				if err := read.Close(); err != nil {
					t.Fatal(err)
				}
			}
			s.pg.Exec(t, `INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload)
 SELECT 'order', i::text, 'x', '{}' FROM generate_series(1, 100) i`)
			all += 100
			settled(t, s.pg, fmt.Sprint(all))
			if row.leaves {
				r.wantDropped(t)
			}
			if code := r.stop(t, row.signal); code != exitDone {
				t.Errorf("after %v: got exit code %d, want 0", row.signal, code)
			}
			if dirty := s.pg.Query(t, "SELECT dirty FROM cdc_relay_state"); dirty != "false" {
				t.Errorf("dirty after a stop: got %s, want false", dirty)
			}
		})
	}
}

// Breaks it catches: JSON for a person at a terminal, a start that does not say where the console is.
func TestLogOnATerminalIsForPeople(t *testing.T) {
	script := harness.Program(t, "script", "bsdutils")
	s := newServices(t, orderTopic)
	cdcRelay(t, s.environ, "init").want(t, exitDone, nil, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	relay, _, _ := command(ctx, t, s.environ, "run", "--http-listen", "127.0.0.1:0")
	cmd := exec.CommandContext(ctx, script, "-qefc", "echo $$; exec "+strings.Join(relay.Args, " "), "/dev/null")
	cmd.Env, cmd.Stderr = append(relay.Env, "SHELL=/bin/sh", "NO_COLOR=1", "TERM=xterm"), os.Stderr
	shown, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines, said := bufio.NewScanner(shown), ""
	lines.Scan()
	pid, err := strconv.Atoi(strings.TrimSpace(lines.Text()))
	if err != nil {
		t.Fatal(err)
	}
	for !strings.Contains(said, "cdc-relay starts") && lines.Scan() {
		said = lines.Text()
		if strings.HasPrefix(said, "{") {
			t.Errorf("got %s, want a line for people", said)
		}
	}
	if !strings.Contains(said, "console=http://127.0.0.1:") {
		t.Errorf("start: got %q, want the console's address", said)
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil { // it outlives its terminal
		t.Error(err)
	}
	for lines.Scan() { // to its end
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("stop: %v", err)
	}
}

// wantDropped waits until the metric counts lines that were dropped.
func (r *running) wantDropped(t *testing.T) {
	t.Helper()
	harness.Eventually(t, 30*time.Second, "dropped lines are counted", func(ctx context.Context) string {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.address+"/metrics", nil)
		if err != nil {
			return err.Error()
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err.Error()
		}
		defer func() { _ = response.Body.Close() }()
		body, err := io.ReadAll(response.Body)
		for line := range strings.Lines(string(body)) {
			if strings.HasPrefix(line, "outbox_log_dropped_total{") && !strings.HasSuffix(line, " 0\n") {
				return ""
			}
		}
		return fmt.Sprintf("no dropped line is counted (%v)", err)
	})
}

// A relay under nohup outlives its terminal. Break it catches: a SIGHUP that ends it. Seen to fail with SIGHUP always
// among the signals that end.
func TestIgnoredSIGHUPStaysIgnored(t *testing.T) {
	s := newServices(t, orderTopic)
	cdcRelay(t, s.environ, "init").want(t, exitDone, nil, nil)
	cmd, _, _ := command(context.Background(), t, s.environ, "run")
	shell := exec.Command("sh", "-c", `trap "" HUP; exec "$0" run --http-listen "$1"`, cmd.Path, "127.0.0.1:0")
	shell.Env = cmd.Env
	log, err := shell.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = shell.Process.Kill() }()
	lines := bufio.NewReader(log)
	var first struct{ HTTP string }
	if line, err := lines.ReadBytes('\n'); err != nil || json.Unmarshal(line, &first) != nil {
		t.Fatalf("got the first log line %q (%v)", line, err)
	}
	(&running{address: first.HTTP}).awaitStatus(t, `"role": "active"`)
	for _, sent := range []os.Signal{syscall.SIGHUP, syscall.SIGTERM} {
		if err := shell.Process.Signal(sent); err != nil {
			t.Fatal(err)
		}
		if sent == syscall.SIGHUP {
			s.pg.Exec(t, `INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type) VALUES ('order', '1', 'x')`)
			settled(t, s.pg, "1")
		}
	}
	rest, _ := io.ReadAll(lines)
	if err := shell.Wait(); err != nil || !strings.Contains(string(rest), "clean stop recorded") {
		t.Errorf("got %v, want a clean stop after SIGTERM; log:\n%s", err, rest)
	}
}

// Sink stdout publishes by printing. Breaks it catches: a relay that goes on without a reader, or ends as if
// all was well; an event that the reader never got and the journal has. Seen to fail without the look at what a write
// returns: the relay stayed.
func TestStdoutWithoutAReaderEndsAndLosesNothing(t *testing.T) {
	s := newServices(t, orderTopic)
	s.environ = append(s.environ, "CDC_RELAY_SINK=stdout", "CDC_RELAY_OUTBOX_AFTER_PUBLISH=keep",
		"CDC_RELAY_POSTGRES_SLOT="+harness.Unique(t, "gone")+"_stdout", "CDC_RELAY_POSTGRES_SCHEMA=gone_stdout")
	cdcRelay(t, s.environ, "init").want(t, exitDone, nil, nil)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = write.Close() }()
	logFile, err := os.CreateTemp(t.TempDir(), "log")
	if err != nil {
		t.Fatal(err)
	}
	r := startUnread(t, s, write, logFile)
	r.awaitStatus(t, `"role": "active"`)
	if err := read.Close(); err != nil {
		t.Fatal(err)
	}
	s.pg.Exec(t, `INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type) VALUES ('order', '1', 'x')`)
	select {
	case <-r.done:
	case <-time.After(30 * time.Second):
		t.Fatal("still running 30 s after its reader went away")
	}
	text, _ := os.ReadFile(logFile.Name())
	if code := r.cmd.ProcessState.ExitCode(); code != exitFailed || !strings.Contains(string(text), "output was closed") {
		t.Errorf("got exit code %d (%v), want 1 and the reason; log:\n%s", code, r.cmd.ProcessState, text)
	}
	if got := s.pg.Query(t, "SELECT count(*) FROM gone_stdout.cdc_relay_journal"); got != "0" {
		t.Errorf("journaled without a reader: got %s, want 0", got)
	}
	again := startRelay(t, s.environ)
	harness.Eventually(t, 30*time.Second, "the event is printed", func(context.Context) string {
		if got := s.pg.Query(t, "SELECT count(*) FROM gone_stdout.cdc_relay_journal"); got != "1" {
			return "got " + got + " journal rows, want 1"
		}
		return ""
	})
	if code := again.stop(t, syscall.SIGTERM); code != exitDone {
		t.Errorf("got exit code %d, want 0; log:\n%s", code, again.log)
	}
}

// Break it catches: commands in front of head that complain, or linger. Written, but not run, to fail with SIGPIPE
// caught for all.
func TestCommandsInFrontOfHeadEndQuietly(t *testing.T) {
	cmd, _, errs := command(context.Background(), t, nil, "config", "schema")
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = write
	if err := read.Close(); err != nil {
		t.Fatal(err)
	}
	err = cmd.Run()
	_ = write.Close()
	status, is := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !is || !status.Signaled() || status.Signal() != syscall.SIGPIPE || errs.Len() != 0 {
		t.Errorf("got %v and %q, want an end by SIGPIPE without a word", err, errs)
	}
}
