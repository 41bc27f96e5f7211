package directory_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/run/directory"
)

const patience = 20 * time.Second // of what takes milliseconds on a quiet machine

// stage is a directory whose files describe stand-ins for relays: "SLOT MIB", or "-" for a slot that Run has to learn,
// and behind it what its end says.
type stage struct {
	t    *testing.T
	path string
	end  func() error

	mu      sync.Mutex
	changed chan struct{}     // closed at the next change; guarded by mu, as what follows
	runs    map[string]string // what runs now, by name
	starts  map[string]int
	at      map[string]string // halted, outdated or nothing, by name
	most    int64             // memory needed at once
	now     int64
}

func newStage(t *testing.T, files ...string) *stage {
	s := &stage{t: t, path: t.TempDir(), changed: make(chan struct{}), runs: map[string]string{}, starts: map[string]int{},
		at: map[string]string{}}
	for n := 0; n < len(files); n += 2 {
		s.write(files[n], files[n+1])
	}
	return s
}

func (s *stage) write(name, text string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.path, name+".yaml"), []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stage) remove(name string) {
	s.t.Helper()
	if err := os.Remove(filepath.Join(s.path, name+".yaml")); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stage) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *stage) Halted(name, reason, _ string) { s.change(func() { s.at[name] = "halted: " + reason }) }
func (s *stage) Gone(name string)              { s.change(func() { delete(s.at, name) }) }
func (s *stage) Outdated(name, why string) {
	s.change(func() {
		if s.at[name] = "outdated: " + why; why == "" {
			delete(s.at, name)
		}
	})
}

func (s *stage) describe(file string, text []byte) (directory.Relay, error) {
	name := strings.TrimSuffix(filepath.Base(file), ".yaml")
	slot, rest, _ := strings.Cut(string(text), " ")
	mib, err := strconv.Atoi(rest)
	if err != nil {
		return directory.Relay{}, fmt.Errorf("%s:1: wrong", file)
	}
	c := config.Default()
	c.Limits.InFlightBytes, c.Postgres.Slot = config.ByteSize(mib), slot
	r := directory.Relay{Config: c, Slot: strings.TrimSuffix(slot, "-")}
	r.Run = func(ctx context.Context, claim func(context.Context, string) error) error {
		if err := claim(ctx, slot); err != nil {
			return err
		}
		s.change(func() {
			if s.runs[name] != "" {
				s.t.Errorf("%s runs twice", name)
			}
			s.runs[name], s.at[name] = string(text), ""
			delete(s.at, name)
			s.starts[name]++
		})
		defer s.change(func() { delete(s.runs, name) })
		if slot == "fails" {
			return errors.New("it cannot be made")
		}
		<-ctx.Done()
		return s.end()
	}
	return r, nil
}

// run runs the directory until the test's end, or the function that it returns is called.
func (s *stage) run(memory int64) (stop func() error) {
	if s.end == nil {
		s.end = func() error { return nil }
	}
	ctx, cancel := context.WithCancel(context.Background())
	d := directory.New(directory.Options{
		Path: s.path, Describe: s.describe, Audience: s, Logger: zerolog.Nop(), Began: func() {},
		Look: 5 * time.Millisecond, Memory: memory,
		Needs: func(relays ...config.Config) (sum int64) {
			for _, c := range relays {
				sum += int64(c.Limits.InFlightBytes)
			}
			return sum
		},
		Tune: func(bytes int64) { s.change(func() { s.now = bytes; s.most = max(s.most, bytes) }) },
	})
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	stop = sync.OnceValue(func() error { cancel(); return <-done })
	s.t.Cleanup(func() { _ = stop() })
	return stop
}

// await waits until it is so.
func (s *stage) await(what string, is func() bool) {
	s.t.Helper()
	late := time.After(patience)
	for {
		s.mu.Lock()
		ok, changed := is(), s.changed
		s.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-late:
			s.t.Fatalf("%s: got running %v, told %v", what, s.runs, s.at)
		}
	}
}

// wantRunning waits until these run, by name and content, and no others.
func (s *stage) wantRunning(pairs ...string) {
	s.t.Helper()
	want := map[string]string{}
	for n := 0; n < len(pairs); n += 2 {
		want[pairs[n]] = pairs[n+1]
	}
	s.await(fmt.Sprintf("want running %v", want), func() bool { return maps.Equal(s.runs, want) })
}

func (s *stage) wantTold(name, what string) {
	s.t.Helper()
	s.await(fmt.Sprintf("want told of %s: %q", name, what), func() bool {
		return what == "" && s.at[name] == "" || what != "" && strings.Contains(s.at[name], what)
	})
}

func (s *stage) wantStarts(name string, n int) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.starts[name] != n {
		s.t.Errorf("%s: got %d starts, want %d", name, s.starts[name], n)
	}
}

// Breaks it catches: a file whose relay does not start, restart or stop, others that are restarted with it, a relay
// that goes on when its file is gone, one that is restarted though its file says the same.
func TestFilesStartRestartAndStopTheirRelayAlone(t *testing.T) {
	s := newStage(t, "a", "a 1", "b", "b 1")
	s.write(".hidden", "h 1")
	stop := s.run(0)
	s.wantRunning("a", "a 1", "b", "b 1")
	s.write("c", "c 1")
	s.wantRunning("a", "a 1", "b", "b 1", "c", "c 1")
	s.write("b", "b 2")
	s.wantRunning("a", "a 1", "b", "b 2", "c", "c 1")
	s.remove("c")
	s.wantRunning("a", "a 1", "b", "b 2")
	s.wantStarts("a", 1)
	s.wantStarts("b", 2)
	if err := stop(); err != nil {
		t.Errorf("stop: got %v, want no error", err)
	}
	s.wantRunning()
}

// Breaks it catches: a wrong file that stops a relay that runs, or is not told; a right one that is not taken up.
func TestAWrongFileHaltsANewRelayAndNoOther(t *testing.T) {
	s := newStage(t, "a", "a 1", "b", "nonsense")
	s.run(0)
	s.wantTold("b", "halted: "+filepath.Join(s.path, "b.yaml")+":1: wrong")
	s.wantRunning("a", "a 1")
	s.write("a", "nonsense")
	s.wantTold("a", "outdated: "+filepath.Join(s.path, "a.yaml")+":1: wrong")
	s.write("b", "b 1")
	s.wantRunning("a", "a 1", "b", "b 1")
	s.write("a", "a 1") // as it runs
	s.wantTold("a", "")
	s.wantTold("b", "")
	s.wantStarts("a", 1)
	s.write("b", "nonsense")
	s.wantTold("b", "outdated")
	s.remove("b")
	s.wantRunning("a", "a 1")
	s.wantTold("b", "")
}

// Breaks it catches: two relays with one slot, a second one that stays halted when the first has given the slot up, a
// restart that loses the slot to the other.
func TestASlotIsOfOneFile(t *testing.T) {
	s := newStage(t, "a", "one 1", "b", "one 1")
	s.run(0)
	s.wantRunning("a", "one 1")
	s.wantTold("b", "halted: slot one is the slot of "+filepath.Join(s.path, "a.yaml"))
	for n := range 10 {
		s.write("a", fmt.Sprintf("one %d", n+2))
		s.wantRunning("a", fmt.Sprintf("one %d", n+2))
	}
	s.write("a", "two 1")
	s.wantRunning("a", "two 1", "b", "one 1")
	s.wantTold("b", "")
	s.remove("a")
	s.write("b", "two 1")
	s.wantRunning("b", "two 1")
}

// Breaks it catches: relays that together need more than the limit, also while one that is replaced still runs; one
// that stays halted when there is room again, a running one that is stopped for content that does not fit.
func TestRelaysFitIntoTheMemory(t *testing.T) {
	s := newStage(t, "a", "a 60", "b", "b 30", "c", "c 20")
	s.run(100)
	s.wantRunning("a", "a 60", "b", "b 30")
	s.wantTold("c", "halted")
	s.write("b", "b 50")
	s.wantTold("b", "outdated")
	s.wantRunning("a", "a 60", "b", "b 30")
	s.write("a", "a 10")
	s.wantRunning("a", "a 10", "b", "b 50", "c", "c 20")
	s.wantTold("b", "")
	s.wantTold("c", "")
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.most > 100 || s.now != 80 {
		t.Errorf("memory: got at most %d and %d at last, want at most 100 and 80", s.most, s.now)
	}
}

// Breaks it catches: a relay that cannot be made and takes others along, or whose reason is not told; a corrected file
// that waits for the next try of the wrong one.
func TestARelayThatEndsByItselfIsToldAndTriedAgain(t *testing.T) {
	s := newStage(t, "a", "fails 1", "b", "b 1")
	s.run(0)
	s.wantTold("a", "halted: it cannot be made")
	s.wantRunning("b", "b 1")
	s.write("a", "a 1")
	s.wantRunning("a", "a 1", "b", "b 1")
	s.wantTold("a", "")
}

// Breaks it catches: a stop that does not wait for relays, or hides that one of them could not stop in order.
func TestAStopWaitsForAllRelays(t *testing.T) {
	s := newStage(t, "a", "a 1", "b", "b 1", "c", "- 1")
	s.end = func() error { return errors.New("out of time") }
	stop := s.run(0)
	s.wantRunning("a", "a 1", "b", "b 1", "c", "- 1")
	err := stop()
	for _, name := range []string{"a", "b", "c"} {
		if err == nil || !strings.Contains(err.Error(), "relay "+name+": out of time") {
			t.Errorf("stop: got %v, want that relay %s was out of time", err, name)
		}
	}
	s.wantRunning()
}

// In a volume of Kubernetes the files are links through a link that is replaced. Breaks it catches: a change that is
// not seen, a hidden folder that is read, a relay that stops while the folders are exchanged.
func TestALinkedFolderIsExchangedWithoutAStop(t *testing.T) {
	s := newStage(t)
	data := filepath.Join(s.path, "..data")
	folder := func(name string, files map[string]string) {
		t.Helper()
		at := filepath.Join(s.path, name)
		if err := os.Mkdir(at, 0o700); err != nil {
			t.Fatal(err)
		}
		for file, text := range files {
			if err := os.WriteFile(filepath.Join(at, file+".yaml"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(os.Symlink(name, data+"_tmp"), os.Rename(data+"_tmp", data)); err != nil {
			t.Fatal(err)
		}
		for file := range files {
			link := filepath.Join(s.path, file+".yaml")
			if err := os.Symlink(filepath.Join("..data", file+".yaml"), link); err != nil && !errors.Is(err, os.ErrExist) {
				t.Fatal(err)
			}
		}
	}
	folder("..1", map[string]string{"a": "a 1", "b": "b 1"})
	s.run(0)
	s.wantRunning("a", "a 1", "b", "b 1")
	folder("..2", map[string]string{"a": "a 2", "b": "b 1", "c": "c 1"})
	s.wantRunning("a", "a 2", "b", "b 1", "c", "c 1")
	s.wantStarts("b", 1)
	folder("..3", map[string]string{"a": "a 2"}) // the links to the others lead nowhere
	s.wantRunning("a", "a 2")
	s.wantStarts("a", 2)
}

// Breaks it catches: a directory that is not there taken for an empty one.
func TestAMissingDirectoryIsAnError(t *testing.T) {
	s := newStage(t)
	s.path = filepath.Join(s.path, "nothing")
	if err := s.run(0)(); err == nil || !strings.Contains(err.Error(), "--config-dir") {
		t.Errorf("got %v, want an error that names --config-dir", err)
	}
}

// Breaks it catches: a directory that cannot be read for a while, as a volume that is away, taken for an empty one.
func TestRelaysGoOnWhileTheDirectoryIsAway(t *testing.T) {
	s := newStage(t, "a", "a 1")
	s.run(0)
	s.wantRunning("a", "a 1")
	away := s.path + "-away"
	if err := os.Rename(s.path, away); err != nil {
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond) // ten looks; were they taken for an empty directory, the relay would have stopped
	if err := os.Rename(away, s.path); err != nil {
		t.Fatal(err)
	}
	s.write("b", "b 1")
	s.wantRunning("a", "a 1", "b", "b 1")
	s.wantStarts("a", 1)
}

// Breaks it catches: the name of a file that would break a label or a line, taken as it is.
func TestAnOddNameIsHalted(t *testing.T) {
	s := newStage(t, "a\nb", "a 1", strings.Repeat("n", 101), "n 1", "b", "b 1")
	s.run(0)
	s.wantTold("a\nb", "halted: the file's name is the relay's")
	s.wantTold(strings.Repeat("n", 101), "halted: the file's name")
	s.wantRunning("b", "b 1")
}
