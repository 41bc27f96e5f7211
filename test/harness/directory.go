package harness

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"testing"
)

// Directory is the relay's binary with a directory of configuration files, a relay each.
type Directory struct {
	*Relay
	path string
}

// NewDirectory makes an empty directory; it starts nothing. The arguments join the command line of Start.
func NewDirectory(t testing.TB, args ...string) *Directory {
	t.Helper()
	addr, err := freeAddr()
	if err != nil {
		t.Fatal(err)
	}
	d := &Directory{Relay: NewRelay(t, Settings{"http.listen": addr})}
	d.path = filepath.Join(d.dir, "relays")
	if err := os.Mkdir(d.path, 0o700); err != nil {
		t.Fatal(err)
	}
	d.runs = append([]string{"run", "--config-dir", d.path, "--http-listen", addr}, args...)
	return d
}

// File is the path of the file of a relay.
func (d *Directory) File(name string) string { return filepath.Join(d.path, name+".yaml") }

// Put writes the file of a relay, but for what is the process's.
func (d *Directory) Put(t testing.TB, name string, s Settings) {
	t.Helper()
	s = maps.Clone(s)
	delete(s, "http.listen")
	text, err := s.YAML()
	if err != nil {
		t.Fatal(err)
	}
	d.Write(t, name, string(text))
}

// Write writes the file of a relay, whatever is in it.
func (d *Directory) Write(t testing.TB, name, text string) {
	t.Helper()
	if err := os.WriteFile(d.File(name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Remove removes the file of a relay.
func (d *Directory) Remove(t testing.TB, name string) {
	t.Helper()
	if err := os.Remove(d.File(name)); err != nil {
		t.Fatal(err)
	}
}

// Label is the label of a relay's metrics.
func (d *Directory) Label(name string) string { return fmt.Sprintf("relay=%q", name) }
