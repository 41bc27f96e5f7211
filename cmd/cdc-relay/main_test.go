package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/test/embedded"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

const (
	exitDone   = cli.ExitDone
	exitFailed = cli.ExitFailed
	exitUsage  = cli.ExitUsage
)

// runsAsCommand makes the test binary be cdc-relay: the tests run the real program in a process of its own.
const runsAsCommand = "TEST_BINARY_IS_THE_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(runsAsCommand) != "" {
		main()
		return
	}
	harness.Main(m)
}

// outcome holds a command's output and exit code.
type outcome struct {
	code        int
	out, errors string
}

// command prepares the program with an environment of its own: none of the surroundings' CDC_RELAY_ variables.
func command(ctx context.Context, t testing.TB, environ []string,
	args ...string) (*exec.Cmd, *bytes.Buffer, *bytes.Buffer) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, program, args...)
	// Built for the race detector, a program sleeps for a second before it exits.
	cmd.Env = append([]string{runsAsCommand + "=1", "PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"),
		"TMPDIR=" + os.Getenv("TMPDIR"), "GORACE=atexit_sleep_ms=0"}, environ...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	return cmd, &out, &errs
}

// cdcRelay runs the program to its end.
func cdcRelay(t testing.TB, environ []string, args ...string) outcome {
	t.Helper()
	const patience = 60 * time.Second
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd, out, errs := command(ctx, t, environ, args...)
	err := cmd.Run()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		t.Fatalf("cdc-relay %v: %v", args, err)
	}
	return outcome{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

// want fails the test unless code and texts are as wanted; a text that begins with ! must be absent.
func (o outcome) want(t testing.TB, code int, inOut, inErrors []string) {
	t.Helper()
	if o.code != code {
		t.Errorf("got exit code %d, want %d", o.code, code)
	}
	for _, where := range []struct {
		name, text string
		want       []string
	}{{"output", o.out, inOut}, {"errors", o.errors, inErrors}} {
		for _, w := range where.want {
			if absent, found := strings.CutPrefix(w, "!"); found {
				if strings.Contains(where.text, absent) {
					t.Errorf("the %s contain %q", where.name, absent)
				}
			} else if !strings.Contains(where.text, w) {
				t.Errorf("the %s do not contain %q", where.name, w)
			}
		}
	}
	if t.Failed() {
		t.Fatalf("output:\n%s\nerrors:\n%s", o.out, o.errors)
	}
}

// services is a fresh database and an in-process broker, as environment of the command.
type services struct {
	pg      *harness.PG
	broker  *embedded.FakeKafka
	environ []string
}

func newServices(t *testing.T, topics map[string]int32) services {
	t.Helper()
	return newServicesOn(t, harness.Postgres(t), topics)
}

// newServicesOn is newServices with a server of the test's own.
func newServicesOn(t *testing.T, pg *harness.PG, topics map[string]int32) services {
	t.Helper()
	broker, err := embedded.StartFakeKafka(embedded.FakeKafkaConfig{Topics: topics})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broker.Close)
	return services{pg, broker, []string{
		"CDC_RELAY_POSTGRES_URL=" + pg.URL, "CDC_RELAY_KAFKA_BROKERS=" + broker.Addresses()[0],
		"CDC_RELAY_POSTGRES_SLOT=" + harness.Unique(t, "slot"), "CDC_RELAY_HTTP_LISTEN=127.0.0.1:0",
		"CDC_RELAY_POSTGRES_WAL_SENDER_TIMEOUT=10s",
	}}
}

// variable returns the command's environment variable of that name.
func (s services) variable(name string) string {
	for _, pair := range s.environ {
		if value, found := strings.CutPrefix(pair, name+"="); found {
			return value
		}
	}
	return ""
}
