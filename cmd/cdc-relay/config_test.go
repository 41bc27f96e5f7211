package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Breaks it catches: a value shown that another one beats, an origin that is not its own, a password in the clear. Seen
// to fail with URLs printed as they are, and with the origin of the file kept when a flag has won.
func TestConfigShowTellsWhatIsSetAndWhere(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "relay.yaml")
	text := "postgres:\n  url: postgres://relay:hidden@db/app\nlog:\n  level: warn\nretry:\n  schedule: [1m, 5m]\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	environ := []string{"CDC_RELAY_RETRY_SCHEDULE=2m,10m", "CDC_RELAY_SERVICE=orders"}
	got := cdcRelay(t, environ, "config", "show", "--config", file, "--service", "billing", "--json")
	var keys []struct {
		Key, Value, From string
		Default          bool
	}
	if err := json.Unmarshal([]byte(got.out), &keys); got.code != exitDone || err != nil {
		t.Fatalf("config show: exit code %d, %v; it said %s%s", got.code, err, got.out, got.errors)
	}
	want := map[string]string{
		"service": "billing --service", "postgres.url": "postgres://relay:xxxxx@db/app " + file + ":2",
		"log.level": "warn " + file + ":4", "retry.schedule": "[2m, 10m] CDC_RELAY_RETRY_SCHEDULE",
	}
	for _, k := range keys {
		if shown := k.Value + " " + k.From; shown != want[k.Key] {
			t.Errorf("%s: got %q, want %q", k.Key, shown, want[k.Key])
		}
		delete(want, k.Key)
	}
	if len(want) > 0 {
		t.Errorf("not shown: %v", want)
	}
	got = cdcRelay(t, environ, "config", "show", "--config", file, "--all")
	if !strings.Contains(got.out, "default\n") || !strings.Contains(got.out, "kafka.compression") {
		t.Errorf("config show --all: no defaults in\n%s%s", got.out, got.errors)
	}
	if got := cdcRelay(t, nil, "config", "show", "--set", "log.level=loud"); got.code != exitUsage {
		t.Errorf("a wrong value: got exit code %d, want %d; it said %s", got.code, exitUsage, got.errors)
	}
	if got := cdcRelay(t, nil, "config", "schema"); got.code != exitDone || !json.Valid([]byte(got.out)) {
		t.Errorf("config schema: exit code %d, valid JSON: %v", got.code, json.Valid([]byte(got.out)))
	}
}
