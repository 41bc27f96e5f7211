package inbox

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// Break it catches: an inbox that init makes and one that the Go module makes, which differ. Seen to fail with a file
// changed on one side, and with one that the other side lacks.
func TestTheFilesAreThoseOfTheModule(t *testing.T) {
	module := "../../../../inbox/internal/ledger"
	theirs, err := filepath.Glob(filepath.Join(module, "*.sql"))
	if err != nil {
		t.Fatal(err)
	}
	ours, err := fs.Glob(files, "*.sql")
	if err != nil || len(ours) != len(theirs) || len(ours) == 0 {
		t.Fatalf("files: got %q and the module's %q, %v; want as many", ours, theirs, err)
	}
	for _, name := range ours {
		mine, err := files.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if other, err := os.ReadFile(filepath.Join(module, name)); err != nil || !bytes.Equal(mine, other) {
			t.Errorf("%s is not the module's (%v): copy inbox/internal/ledger/*.sql to internal/doctor/install/inbox", name, err)
		}
	}
}
