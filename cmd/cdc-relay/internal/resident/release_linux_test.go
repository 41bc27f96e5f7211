package resident

import (
	"os"
	"path/filepath"
	"testing"
)

// Breaks caught: pages that were written given back, whose contents would be the file's again; those of libraries;
// pages about which the kernel says nothing. Seen to fail with each of the three conditions of releasable left out.
func TestOnlyThePagesThatAreTheFilesGo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "smaps")
	if err := os.WriteFile(path, []byte(`00400000-010c1000 r-xp 00000000 fe:00 1234           /opt/a b/relay
Rss:               11620 kB
Anonymous:             0 kB
VmFlags: rd ex mr mw me
010c1000-020c1000 r--p 00cc1000 fe:00 1234                               /opt/a b/relay
Anonymous:             0 kB
020c1000-020d1000 rw-p 01cc1000 fe:00 1234                               /opt/a b/relay
Anonymous:             0 kB
020d1000-020e1000 r--p 01cd1000 fe:00 1234                               /opt/a b/relay
Anonymous:             4 kB
020e1000-020f1000 r--p 01ce1000 fe:00 1234                               /opt/a b/relay
c000000000-c000400000 rw-p 00000000 00:00 0
Anonymous:          1024 kB
7f0000000000-7f0000001000 r-xp 00000000 fe:00 99                         /lib/libc.so.6
Anonymous:             0 kB
`), 0o600); err != nil {
		t.Fatal(err)
	}
	all, err := list(path)
	if err != nil || len(all) != 7 {
		t.Fatalf("got %d mappings, %v, want 7", len(all), err)
	}
	var got []uintptr
	for _, m := range all {
		if m.releasable("/opt/a b/relay") {
			got = append(got, m.from, m.to)
		}
	}
	want := []uintptr{0x400000, 0x10c1000, 0x10c1000, 0x20c1000}
	if len(got) != len(want) || got[0] != want[0] || got[1] != want[1] || got[2] != want[2] || got[3] != want[3] {
		t.Errorf("to be given back: got %x, want %x", got, want)
	}
}
