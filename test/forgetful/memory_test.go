package main

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// model is a file's expected content: as seen now, and after a crash.
type model struct{ seen, durable []byte }

func grown(b []byte, size int) []byte {
	if len(b) < size {
		b = append(bytes.Clone(b), make([]byte, size-len(b))...)
	}
	return b
}

// Random writes, cuts and syncs, compared with a model at each step. Breaks it catches: a write that is durable without
// a sync, or not durable with one; a read that misses what is held, or sees what was cut off. Seen to fail with sync
// that writes nothing, with writes that go to the durable file, with pages behind a cut kept, and with holes not
// cleared.
func TestReadsSeeEverythingAndACrashLeavesWhatWasSynced(t *testing.T) {
	const most = 5 * pageSize
	for seed := range uint64(300) {
		dice := rand.New(rand.NewPCG(seed, 0))
		path := filepath.Join(t.TempDir(), "file")
		held := &memory{files: map[uint64]*file{}}
		f, err := held.of(1, func() (int, error) {
			return syscall.Open(path, syscall.O_RDWR|syscall.O_CREAT|syscall.O_CLOEXEC, 0o600)
		})
		if err != nil {
			t.Fatal(err)
		}
		var m model
		for step := range 60 {
			switch dice.IntN(8) {
			case 0:
				if err := f.sync(); err != nil {
					t.Fatal(err)
				}
				m.durable = bytes.Clone(m.seen)
			case 1: // as node.Setattr does it
				size := dice.IntN(most)
				if err := syscall.Truncate(path, int64(size)); err != nil {
					t.Fatal(err)
				}
				f.cut(int64(size))
				m.seen, m.durable = grown(m.seen, size)[:size], grown(m.durable, size)[:size]
			default:
				at, data := dice.IntN(most), make([]byte, 1+dice.IntN(2*pageSize))
				for i := range data {
					data[i] = byte(1 + dice.IntN(255))
				}
				if err := f.write(data, int64(at)); err != nil {
					t.Fatal(err)
				}
				m.seen = grown(bytes.Clone(m.seen), at+len(data))
				copy(m.seen[at:], data)
			}
			durable, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(durable, m.durable) {
				t.Fatalf("seed %d, step %d: the durable file is not what was synced", seed, step)
			}
			if got := f.size(uint64(len(durable))); got != uint64(len(m.seen)) {
				t.Fatalf("seed %d, step %d: size %d, want %d", seed, step, got, len(m.seen))
			}
			at := dice.IntN(most)
			into := bytes.Repeat([]byte{0xff}, 2*pageSize)
			n, err := f.read(into, int64(at))
			if want := m.seen[min(at, len(m.seen)):min(at+len(into), len(m.seen))]; err != nil || !bytes.Equal(into[:n], want) {
				t.Fatalf("seed %d, step %d: read at %d: %d bytes (%v), want %d; or others", seed, step, at, n, err, len(want))
			}
		}
		_ = syscall.Close(f.fd)
	}
}
