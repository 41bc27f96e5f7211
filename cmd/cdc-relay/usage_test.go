package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
)

// Each row is a promise to scripts. Breaks it catches: exit codes of the library, help on the wrong stream, a mistake
// that runs anyway. Seen to fail with the code of wrong configuration or usage left at 1, help for a line without a
// command not failing, a required key too many or too few, the sub-command left out of "Try:", -q that prints, and help
// taken for a command.
func TestExitCodesAndStreams(t *testing.T) {
	file := filepath.Join(t.TempDir(), "relay.yaml")
	if err := os.WriteFile(file, []byte("postgres: {url: 'postgres://a:hunter2@h/d', slott: x}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		environ []string
		args    []string
		code    int
		out     []string
		errors  []string
	}{
		"help": {args: []string{"--help"}, out: []string{"Usage: cdc-relay", "demo", "--postgres-url"},
			errors: []string{"!Usage"}},
		"no command":      {code: 2, out: []string{"!Usage"}, errors: []string{"Usage: cdc-relay"}},
		"unknown command": {args: []string{"fly"}, code: 2, errors: []string{"fly", "Try: cdc-relay --help"}},
		"flag of a command": {args: []string{"dlq", "list", "--al"}, code: 2,
			errors: []string{"Try: cdc-relay dlq list --help"}},
		"help of a command": {args: []string{"help", "dlq", "list"}, out: []string{"Usage: cdc-relay dlq list"}},
		"help of all":       {args: []string{"help"}, out: []string{"Usage: cdc-relay", "demo"}},
		"version as a flag": {args: []string{"--version"}, out: []string{"cdc-relay "}, errors: []string{"!cdc-relay"}},
		"version as YAML":   {args: []string{"version", "-o", "yaml"}, out: []string{"commit: ", "go: go1.", "!{"}},
		"version as JSON":   {args: []string{"-o", "json", "version"}, out: []string{`"go": "go1.`}},
		"quiet":             {args: []string{"version", "-q"}, out: []string{"!cdc-relay"}},
		"quiet JSON":        {args: []string{"version", "-q", "--json"}, out: []string{`"go": "go1.`}},
		"unknown output":    {args: []string{"version", "-o", "xml"}, code: 2, errors: []string{"xml", "yaml"}},
		"unknown flag": {args: []string{"run", "--postgres-slott=x"}, code: 2,
			errors: []string{"--postgres-slott", `did you mean "--postgres-slot"`}},
		"flag that takes the next one for its value": {
			args: []string{"run", "--postgres-allow-second-slot", "--config", file}, code: 2,
			errors: []string{"--postgres-allow-second-slot: found no value, and the flag --config behind it"}},
		"flag without value": {args: []string{"run", "--postgres-url"}, code: 2, errors: []string{"--postgres-url"}},
		"nothing configured": {args: []string{"run"}, code: 2,
			errors: []string{"2 problems", "postgres.url: not set", "kafka.brokers: not set", "allowed: "}},
		"init needs postgres": {args: []string{"init"}, code: 2, errors: []string{"postgres.url", "!kafka.brokers"}},
		"no such file": {args: []string{"run", "--config", "/no/such/file"}, code: 2,
			errors: []string{"--config", "/no/such/file", "!kafka.brokers"}},
		"problems of all sources": {
			environ: []string{"CDC_RELAY_HTTP_LISTEN=nowhere", "CDC_RELAY_LOG_LEVLE=debug", "CDC_RELAY_CONFIG=" + file},
			args:    []string{"check", "--kafka-linger=-1s", "--set", "log.format=xml", "--set", "on_halt"}, code: 2,
			out: []string{"!ok"},
			errors: []string{
				"7 problems", "postgres.slott (" + file + ":1): unknown key; the nearest known key is postgres.slot",
				"CDC_RELAY_LOG_LEVLE: unknown key; the nearest known variable is CDC_RELAY_LOG_LEVEL",
				"kafka.brokers: not set", `kafka.linger (--kafka-linger): found "-1s"; allowed: `,
				`http.listen (CDC_RELAY_HTTP_LISTEN): found "nowhere"; allowed: host:port`,
				`log.format (--set): found "xml"; allowed: json, console`, "on_halt (--set): found no value", "!hunter2",
			},
		},
		"masked password": {args: []string{"check", "--postgres-url", "mysql://a:hunter2@h/d"}, code: 2,
			errors: []string{"mysql://a:xxxxx@h/d", "!hunter2"}},
		"demo without a rate": {args: []string{"demo", "--rate", "0"}, code: 2, errors: []string{"--rate"}},
		"verify bad time": {args: []string{"verify", "--postgres-url=host=h", "--kafka-brokers=h:1", "--since",
			"yesterday"}, code: 2, errors: []string{"--since", "yesterday", "24h"}},
		"completion of what": {args: []string{"completion", "tcsh"}, code: 2, errors: []string{"tcsh"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cdcRelay(t, c.environ, c.args...).want(t, c.code, c.out, c.errors)
		})
	}
}

// Breaks it catches: a command that connects before the whole configuration is known to be right. Seen to fail with
// problems of the configuration passed over.
func TestWrongConfigurationConnectsToNothing(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	connected := make(chan string, 16)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			connected <- conn.RemoteAddr().String()
			conn.Close()
		}
	}()
	address := listener.Addr().String()
	environ := []string{"CDC_RELAY_POSTGRES_URL=postgres://u@" + address + "/d", "CDC_RELAY_KAFKA_BROKERS=" + address,
		"CDC_RELAY_HTTP_LISTEN=" + address}
	for _, name := range []string{"run", "init", "check", "status", "verify", "demo", "dlq list", "dlq show x",
		"dlq replay --all", "dlq discard --all --yes",
		"parked list", "retry now --all", "pause", "resume"} {
		cdcRelay(t, environ, append(strings.Fields(name), "--log-level=loud")...).want(t, exitUsage, nil,
			[]string{`found "loud"`})
	}
	listener.Close()
	<-done
	if len(connected) > 0 {
		t.Errorf("got %d connections, want none", len(connected))
	}
}

// Seen to fail with an example left out.
func TestEveryCommandHasHelpWithAnExample(t *testing.T) {
	for _, name := range []string{"run", "init", "check", "status", "dlq", "dlq list", "dlq show", "dlq replay",
		"dlq discard", "parked", "parked list", "retry",
		"retry now", "pause", "resume", "verify", "reconcile", "slot", "demo", "version", "completion"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cdcRelay(t, nil, append(strings.Fields(name), "--help")...).want(t, exitDone,
				[]string{"Usage: cdc-relay " + name, "Example", "cdc-relay " + name}, []string{"!cdc-relay"})
		})
	}
}

// Seen to fail with the commit left empty.
func TestVersion(t *testing.T) {
	o := cdcRelay(t, nil, "version")
	o.want(t, exitDone, []string{"cdc-relay ", "commit ", "go1."}, nil)
	var facts cli.Facts
	o = cdcRelay(t, []string{"CDC_RELAY_OUTPUT=json"}, "version")
	if err := json.Unmarshal([]byte(o.out), &facts); err != nil {
		t.Fatalf("%v in %s", err, o.out)
	}
	if facts.Version == "" || facts.Commit == "" || !strings.HasPrefix(facts.Go, "go1.") || facts.Platform == "" ||
		facts.Libraries["github.com/jackc/pgx/v5"] == "" {
		t.Errorf("got %+v, want all of it filled", facts)
	}
}

// Breaks it catches: a script that its shell cannot read, or that does not know the commands, their subcommands and the
// flags of these; a subcommand taken for the command of the same name. Seen to fail with subcommands left out, and with
// only the last word looked at.
func TestCompletionScripts(t *testing.T) {
	t.Parallel()
	for shell, want := range map[string]string{
		"bash": "/dlq/list) words=", "zsh": "/dlq/list) words=",
		"fish": `complete -c cdc-relay -n 'test (__cdc_relay_place) = "/dlq"' -f -a replay -d 'Publish dead letters`,
	} {
		cdcRelay(t, nil, "completion", shell).want(t, exitDone, []string{"verify", "kafka-brokers", want, "!-a  -d"}, nil)
	}
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("SKIPPED, NOTHING WAS TESTED: no bash")
	}
	for line, want := range map[string]string{
		"ver":                       "verify version",
		"demo --rat":                "--rate",
		"run --kafka-b":             "--kafka-brokers",
		"dlq ":                      "list reasons show replay edit discard",
		"parked ":                   "list",
		"retry ":                    "now",
		"slot ":                     "status drop advance",
		"slot d":                    "drop",
		"dlq list --st":             "--state",
		"dlq list --older":          "--older-than",
		"dlq discard --y":           "--yes",
		"dlq replay --y":            "",
		"slot status --wat":         "",
		"status --wat":              "--watch",
		"--config=x dlq show --jso": "--json",
		"completion ":               "bash zsh fish",
		"dlq list --class ":         "transient permanent blocked",
		"dlq list --state d":        "discarded",
		"inbox list --state r":      "replayed",
		"status -o ":                "table json yaml",
		"status --output y":         "yaml",
	} {
		words := strings.Split(line, " ")
		script := cdcRelay(t, nil, "completion", "bash").out +
			fmt.Sprintf("\nCOMP_WORDS=(cdc-relay '%s'); COMP_CWORD=%d; _cdc_relay; echo \"${COMPREPLY[*]}\"",
				strings.Join(words, "' '"), len(words))
		if got, err := exec.Command(bash, "-c", script).CombinedOutput(); err != nil ||
			strings.TrimSpace(string(got)) != want {
			t.Errorf("%q: got %q, %v; want %q", line, got, err, want)
		}
	}
}

// Breaks it catches: escape sequences in files and pipes. Seen to fail with the terminal not asked for.
func TestOutputThatIsNoTerminalHasNoColour(t *testing.T) {
	o := cdcRelay(t, []string{"TERM=xterm-256color"}, "check", "--postgres-url=postgres://127.0.0.1:1/d",
		"--kafka-brokers=127.0.0.1:1")
	o.want(t, exitFailed, []string{"FAIL  postgres: ", "FAIL  broker 127.0.0.1:1: ", "; fix: ", "!\x1b"},
		[]string{"!\x1b"})
}

// A script's variable is not set: --older-than "$AGE". Break it catches: a criterion that chooses nothing, and so
// everything, of what is to be discarded. Seen to fail with the tags taken out.
func TestEmptyCriteriaAreRefused(t *testing.T) {
	t.Parallel()
	for command, flags := range map[string]string{
		"dlq discard --all --yes":                "type class topic aggregate position older-than newer-than",
		"inbox discard --consumer c --all --yes": "type class topic older-than newer-than",
		"verify":                                 "since until from-id to-id consumer",
		"find":                                   "aggregate since",
	} {
		for _, flag := range strings.Fields(flags) {
			cdcRelay(t, nil, append(strings.Fields(command), "--"+flag+"=")...).want(t, exitUsage, nil,
				[]string{"--" + flag + `: found ""`})
		}
	}
}

// Break it catches: an exit code 0 for something that was not done. Seen to fail with what is left out not told.
func TestInitOfOneThingTakesNoFlagOfOthers(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--inbox=public", "--roles"}, {"--inbox=public", "--no-slot"},
		{"--rabbitmq-topology", "--emit"}} {
		cdcRelay(t, nil, append([]string{"init"}, args...)...).want(t, exitUsage, nil, []string{"another run of init"})
	}
}
