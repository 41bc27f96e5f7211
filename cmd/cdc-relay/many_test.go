package main

import (
	"os"
	"path/filepath"
	"testing"
)

// Breaks it catches: a directory beside a file, of which one would be ignored; a limit that limits nothing or leaves no
// room; a halt of one relay that ends the others; a directory that is not there taken for an empty one.
func TestADirectoryRefusesWhatDoesNotFit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "relay.yaml")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	environ := []string{"CDC_RELAY_HTTP_LISTEN=127.0.0.1:0"}
	for _, row := range []struct {
		environ string
		args    []string
		code    int
		want    string
	}{
		{"A=", []string{"--config-dir", dir, "--config", file}, exitUsage, "--config"},
		{"CDC_RELAY_CONFIG=" + file, []string{"--config-dir", dir}, exitUsage, "beside --config-dir"},
		{"CDC_RELAY_ON_HALT=exit", []string{"--config-dir", dir}, exitUsage, "on_halt (CDC_RELAY_ON_HALT)"},
		{"A=", []string{"--memory", "1GiB"}, exitUsage, "without --config-dir"},
		{"A=", []string{"--config-dir", dir, "--memory", "lots"}, exitUsage, `--memory: found "lots"`},
		{"A=", []string{"--config-dir", dir, "--memory", "20MiB"}, exitUsage, "above 32MiB"},
		{"A=", []string{"--config-dir="}, exitUsage, "--config-dir"},
		{"A=", []string{"--config-dir", dir + "/nothing"}, exitFailed, "--config-dir"},
	} {
		o := cdcRelay(t, append(environ, row.environ), append([]string{"run"}, row.args...)...)
		o.want(t, row.code, nil, []string{row.want})
	}
}
