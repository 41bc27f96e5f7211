package brokers_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// pasteNATS makes the streams that the printed commands of the tool nats would make; an option that it does not have is
// an error. The tool itself is not here.
func pasteNATS(t *testing.T, js nats.JetStreamContext, text string) (commands []string) {
	t.Helper()
	for _, command := range regexp.MustCompile(`nats stream add [^;\n"]*`).FindAllString(text, -1) {
		words := strings.Fields(command)
		stream := nats.StreamConfig{Name: words[3], Duplicates: 2 * time.Minute}
		for i := 4; i < len(words); i++ {
			option, value := words[i], ""
			if option != "--defaults" && i+1 < len(words) {
				i++
				value = strings.Trim(words[i], "'")
			}
			var err error
			switch option {
			case "--subjects":
				stream.Subjects = strings.Split(value, ",")
			case "--storage":
				stream.Storage = map[string]nats.StorageType{"file": nats.FileStorage, "memory": nats.MemoryStorage}[value]
			case "--replicas":
				stream.Replicas, err = strconv.Atoi(value)
			case "--dupe-window":
				stream.Duplicates, err = time.ParseDuration(value)
			case "--defaults":
			default:
				t.Errorf("%s: no option %s", command, option)
			}
			if err != nil {
				t.Errorf("%s: %v", command, err)
			}
		}
		if _, err := js.AddStream(&stream); err != nil {
			t.Errorf("%s: %v", command, err)
		}
		commands = append(commands, command)
	}
	return commands
}

// A stream is missing, a user lacks every right. Breaks caught: a command that check prints and that a shell, the tool
// or the server refuses, or that does not fix what it is printed for.
func TestPastedCommandsOfOtherBrokersFixWhatCheckFound(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	onNATS, onRedis := harness.NATS(t), harness.Redis(t)
	nc, err := nats.Connect(onNATS.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := nc.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := onRedis.Ask("ACL", "SETUSER", "relay", "on", ">secret"); err != nil {
		t.Fatal(err)
	}
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	host, port, _ := net.SplitHostPort(onRedis.Addr)
	pasteRedis := func(text string) (commands []string) {
		for _, command := range regexp.MustCompile(`redis-cli ACL SETUSER [^;\n"(]*`).FindAllString(text, -1) {
			here := strings.Replace(command, "redis-cli", "redis-cli -e -h "+host+" -p "+port, 1)
			if said, err := exec.CommandContext(t.Context(), "sh", "-c", here).CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s", command, err, said)
			}
			commands = append(commands, command)
		}
		return commands
	}
	for _, broker := range []struct {
		settings []any
		says     string
		paste    func(text string) []string
	}{
		{[]any{"sink", "nats", "nats.url", onNATS.URL}, "no stream takes",
			func(text string) []string { return pasteNATS(t, js, text) }},
		{[]any{"sink", "redis-stream", "redis.url", "redis://relay@" + onRedis.Addr, "redis.password_file", password},
			"NOPERM", pasteRedis},
	} {
		pg := harness.Postgres(t)
		settings := harness.NewSettings(t, pg, nil).With(broker.settings...)
		delete(settings, "kafka.brokers")
		relay := harness.NewRelay(t, settings)
		if code, out, errs := relay.Run(t, "init"); code != 0 {
			t.Fatalf("init: exit code %d\n%s%s", code, out, errs)
		}
		pg.Exec(t, `INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload)
			VALUES ('order', 'a', 'made', '{}')`)
		check := func() string {
			_, out, _ := relay.Run(t, "check")
			return out
		}
		after := check()
		if !strings.Contains(after, broker.says) {
			t.Errorf("got\n%s\nwant it to say %q", after, broker.says)
		}
		var pasted []string
		for range 3 { // the server names what it misses first
			now := broker.paste(after)
			pasted = append(pasted, now...)
			if after = check(); len(now) == 0 {
				break
			}
		}
		if len(pasted) == 0 || strings.Contains(after, broker.says) {
			t.Errorf("after %s\ngot\n%s", strings.Join(pasted, "\n"), after)
		}
	}
}
