package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/test/mutate/seen"
)

// traced is a test that passes when nothing is broken.
type traced struct {
	folder, file, name string
	words              map[string]bool // of its name and comment
	reached            []int
	took               time.Duration
}

// sweep does one package.
func (b *bed) sweep(ctx context.Context, folder string, o options) error {
	names, wanted, err := tests(b.root, folder, o)
	if err != nil || wanted == 0 {
		return err
	}
	fmt.Printf("%s: %d tests to see fail\n", folder, wanted)
	binary, err := b.tests(ctx, folder)
	if err != nil {
		return err
	}
	var unseen []traced
	reachedBy := map[int]int{}
	for n, name := range names {
		if o.over() || n >= wanted && o.alone {
			break
		}
		t, err := b.traceOnce(ctx, binary, folder, name, o)
		if err != nil {
			return err
		}
		if t.name == "" {
			continue
		}
		if n < wanted {
			unseen = append(unseen, t)
		}
		for _, id := range t.reached {
			reachedBy[id]++
		}
	}
	for _, t := range unseen {
		if err := b.breakUntil(ctx, binary, t, reachedBy, o); err != nil {
			return err
		}
	}
	return nil
}

func (o options) over() bool { return !o.ends.IsZero() && time.Now().After(o.ends) }

// traceOnce remembers what a test reaches as long as its binary is the same; a test that does not pass has no name.
func (b *bed) traceOnce(ctx context.Context, binary, folder, name string, o options) (traced, error) {
	sum, err := sumOf(binary)
	if err != nil {
		return traced{}, err
	}
	file, comment := b.fileOf(folder, name)
	memory := filepath.Join(b.dir, "traces", strings.ReplaceAll(folder, "/", "-"), name+".json")
	var known struct {
		Sum     string
		Reached []int
		Took    time.Duration
	}
	if text, err := os.ReadFile(memory); err == nil && json.Unmarshal(text, &known) == nil && known.Sum == sum {
		return traced{folder: folder, file: file, name: name, words: words(comment), reached: known.Reached,
			took: known.Took}, nil
	}
	result, ids, took, said, err := b.trace(ctx, binary, folder, name, o.within, o.args)
	if err != nil {
		return traced{}, err
	}
	if result != passed {
		fmt.Printf("%s.%s: does not pass as it is (%v in %v)\n%.8000s\n", folder, name, result, took.Round(time.Millisecond),
			said)
		return traced{}, nil
	}
	known.Sum, known.Reached, known.Took = sum, ids, took
	text, err := json.Marshal(known)
	if err != nil {
		return traced{}, err
	}
	if err := os.MkdirAll(filepath.Dir(memory), 0o755); err != nil {
		return traced{}, err
	}
	return traced{folder: folder, file: file, name: name, words: words(comment), reached: ids, took: took},
		os.WriteFile(memory, text, 0o644)
}

func sumOf(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	sum := sha256.New()
	_, err = io.Copy(sum, f)
	return fmt.Sprintf("%x", sum.Sum(nil)), err
}

// fileOf is the test file with the test, and the test's name and comment.
func (b *bed) fileOf(folder, name string) (file, comment string) {
	files, _ := filepath.Glob(filepath.Join(b.root, folder, "*_test.go"))
	for _, file := range files {
		text, err := os.ReadFile(file)
		before, _, found := strings.Cut(string(text), "func "+name+"(")
		if err == nil && found {
			return filepath.Base(file), name + " " + before[strings.LastIndex(before, "\n}")+1:]
		}
	}
	return "", name
}

// breakUntil tries changes until the test says that it fails. One that only crashes it, or keeps it from ending, will
// do when no other is found.
func (b *bed) breakUntil(ctx context.Context, binary string, t traced, reachedBy map[int]int, o options) error {
	within := min(o.within, max(10*time.Second, 8*t.took))
	var second *site
	tried, most := 0, o.tries
	for _, s := range b.choose(t, reachedBy, o) {
		if tried == most || o.over() {
			break
		}
		tried++
		result, took, _, err := b.run(ctx, binary, t.folder, t.name, fmt.Sprint(s.id), within, o.args)
		if err != nil {
			return err
		}
		switch result {
		case failed:
			fmt.Printf("%s.%s (%v): fails with %s %s: %s, by the change %d, in %v\n", t.folder, t.name,
				t.took.Round(time.Millisecond), s.folder, s.where, s.change, tried, took.Round(time.Millisecond))
			return note(o.record, t, s)
		case crashed:
			if second == nil {
				second = &s
				most = min(most, tried+o.more)
			}
		}
	}
	if second != nil && !o.over() {
		fmt.Printf("%s.%s: crashes with %s %s: %s\n", t.folder, t.name, second.folder, second.where, second.change)
		return note(o.record, t, *second)
	}
	if o.over() {
		return nil
	}
	fmt.Printf("%s.%s (%v): still passes after %d changes of the %d places that it reaches\n", t.folder, t.name,
		t.took.Round(time.Millisecond), tried, len(t.reached))
	return nil
}

func note(record string, t traced, s site) error {
	entries, err := seen.Load(record)
	if err != nil {
		return err
	}
	entry := seen.Entry{Package: t.folder, Test: t.name, Folder: s.folder, Where: s.where, Change: s.change}
	return seen.Save(record, append([]seen.Entry{entry}, entries...))
}
