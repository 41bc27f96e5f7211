// mutate breaks the code on purpose, in a copy of it, and notes for each test a change with which it fails: a test
// that nothing makes fail tests nothing. It cares about the tests whose comment does not say what they were seen to
// fail with (package seen), and writes what it finds into the record, so a run can be ended and begun again at any
// time.
//
// It compiles the module once, with a switch at each place that can be changed (sites.go), runs each test once to see
// which places it reaches and that it passes, and then with one change after another until it fails.
//
// It does not judge whether a change is the one that the test is for: read what it noted.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/test/mutate/seen"
)

type options struct {
	tries  int
	more   int
	within time.Duration
	ends   time.Time
	seed   uint64
	match  *regexp.Regexp
	only   string
	where  *regexp.Regexp
	all    bool
	alone  bool
	record string

	survivors string
	noticed   string
	fresh     bool
	list      bool
	skip      *regexp.Regexp
	jobs      int
	most      int
	args      []string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("mutate", flag.ExitOnError)
	flags.Usage = func() {
		fmt.Fprintln(flags.Output(), "mutate [flags] folder... [-- arguments of the tests]: run it in the module's root")
		flags.PrintDefaults()
	}
	var o options
	flags.IntVar(&o.tries, "tries", 30, "changes to try for each test")
	flags.IntVar(&o.more, "more", 10,
		"changes to try after one that makes the test panic or not end: one with which it says what is wrong is better")
	flags.DurationVar(&o.within, "within", time.Minute, "how long one run of a test may take")
	flags.Uint64Var(&o.seed, "seed", 1, "another seed tries others of the changes that look equally good")
	flags.StringVar(&o.only, "only", "", "break this folder's code only")
	flags.BoolVar(&o.all, "all", false,
		"also the tests that are in the record, whose entries are replaced, or that say it")
	flags.BoolVar(&o.alone, "alone", false, "do not run the other tests of the folder to see which places they reach too")
	sql := flags.Bool("sql", false,
		"drop each condition, lock, bound and commit level of the store's statements once, and list what no test notices")
	flags.BoolVar(&o.fresh, "new", false, "with -sql: only the changes that are in neither list yet")
	flags.BoolVar(&o.list, "list", false, "with -sql: list the changes that would be tried, and try none")
	skip := flags.String("skip", "", "with -sql: no tests whose name matches")
	flags.IntVar(&o.jobs, "jobs", 2, "with -sql: how many tests run at the same time")
	flags.IntVar(&o.most, "most", 0,
		"with -sql: at most so many tests for a change, those first that look at least else; 0 = all")
	tidy := flags.Bool("tidy", false, "only take out of the record what is out of date: see test/seen_test.go")
	lasting := flags.Duration("for", 0, "end after this long; 0 = when done")
	where := flags.String("where", "", "break only functions whose name, and changes whose text, after a space, matches")
	match := flags.String("run", "", "only tests whose name matches")
	if err := flags.Parse(args); err != nil {
		return err
	}
	folders := flags.Args()
	if n := slices.Index(folders, "--"); n >= 0 {
		folders, o.args = folders[:n], folders[n+1:]
	}
	if len(folders) == 0 && !*tidy && !*sql {
		flags.Usage()
		return errors.New("which folder?")
	}
	var err error
	if o.match, err = regexp.Compile(*match); err != nil {
		return err
	}
	if *skip != "" {
		if o.skip, err = regexp.Compile(*skip); err != nil {
			return err
		}
	}
	if o.where, err = regexp.Compile(*where); err != nil {
		return err
	}
	if *lasting > 0 {
		o.ends = time.Now().Add(*lasting)
	}
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(root, "go.mod")); err != nil {
		return fmt.Errorf("this is not the module's root: %w", err)
	}
	o.record = filepath.Join(root, "test", "mutate", "seen.tsv")
	if *tidy {
		return clean(root, o.record)
	}
	if *sql {
		o.survivors = filepath.Join(root, "test", "mutate", "survivors.tsv")
		o.noticed = filepath.Join(root, "test", "mutate", "noticed.tsv")
		b := &bed{root: root, dir: filepath.Join(root, ".cache", "mutate-sql")}
		return b.sweepSQL(ctx, o)
	}
	b := &bed{root: root, dir: filepath.Join(root, ".cache", "mutate")}
	if err := b.prepare(ctx); err != nil {
		return err
	}
	for _, folder := range folders {
		if err := b.sweep(ctx, strings.Trim(strings.TrimPrefix(folder, "./"), "/"), o); err != nil {
			return err
		}
	}
	return nil
}

// prepare builds the woven module, and keeps what had to be left out for the next time.
func (b *bed) prepare(ctx context.Context) error {
	if err := os.MkdirAll(b.dir, 0o755); err != nil {
		return err
	}
	file := filepath.Join(b.dir, "refused.json")
	b.refused = map[string]int{}
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &b.refused)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := b.build(ctx); err != nil {
		return err
	}
	if text, err = json.Marshal(b.refused); err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o644)
}

// tests are the folder's tests, first those, so many, that nothing is known about.
func tests(root, folder string, o options) (names []string, wanted int, err error) {
	code, err := seen.Read(root)
	if err != nil {
		return nil, 0, err
	}
	entries, err := seen.Load(o.record)
	if err != nil {
		return nil, 0, err
	}
	var others []string
	for _, t := range code.Tests {
		known := t.Says || slices.ContainsFunc(entries, func(e seen.Entry) bool {
			return e.Package == t.Package && e.Test == t.Name
		})
		switch {
		case t.Package != folder:
		case o.match.MatchString(t.Name) && (o.all || !known):
			names = append(names, t.Name)
		default:
			others = append(others, t.Name)
		}
	}
	return append(names, others...), len(names), nil
}

// clean keeps the entries whose test is there and does not say it itself, and whose function is there.
func clean(root, record string) error {
	code, err := seen.Read(root)
	if err != nil {
		return err
	}
	entries, err := seen.Load(record)
	if err != nil {
		return err
	}
	return seen.Save(record, slices.DeleteFunc(entries, func(e seen.Entry) bool {
		return code.Stale(e) != "" || code.Gone(e) != "" || code.Says(e)
	}))
}
