// Command mutate breaks the SQL of store/ on purpose, in a copy of it: it drops conditions, locks, bounds, orders and
// levels of a commit, one at a time, and prints the changes that no test notices. Its reader decides whether a test is
// missing.
//
// It compiles the tests once, with a switch at each place that can be changed (sqlweave.go), runs each test once to see
// which places it reaches and that it passes, and then with one change after another until one fails.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"time"
)

type options struct {
	within time.Duration
	ends   time.Time
	match  *regexp.Regexp
	only   string
	where  *regexp.Regexp
	list   bool
	skip   *regexp.Regexp
	jobs   int
	most   int
	args   []string // of the tests
}

func (o options) over() bool { return !o.ends.IsZero() && time.Now().After(o.ends) }

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
		fmt.Fprintln(flags.Output(), "mutate [flags] [arguments of the tests]: run it in the module's root")
		flags.PrintDefaults()
	}
	var o options
	flags.DurationVar(&o.within, "within", time.Minute, "how long one run of a test may take")
	flags.StringVar(&o.only, "only", "", "break this folder's statements only")
	flags.BoolVar(&o.list, "list", false, "list the changes that would be tried, and try none")
	flags.IntVar(&o.jobs, "jobs", 2, "how many tests run at the same time")
	flags.IntVar(&o.most, "most", 0, "at most so many tests for a change, the likeliest first; 0: all")
	lasting := flags.Duration("for", 0, "end after this long; 0: when done")
	skip := flags.String("skip", "^$", "no tests whose name matches")
	where := flags.String("where", "", "only functions whose name, and changes whose text, after a space, matches")
	match := flags.String("run", "", "only tests whose name matches")
	if err := flags.Parse(args); err != nil {
		return err
	}
	o.args = flags.Args()
	var err error
	for _, p := range []struct {
		into **regexp.Regexp
		text string
	}{{&o.match, *match}, {&o.skip, *skip}, {&o.where, *where}} {
		if *p.into, err = regexp.Compile(p.text); err != nil {
			return err
		}
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
	b := &bed{root: root, dir: filepath.Join(root, ".cache", "mutate-sql")}
	return b.sweepSQL(ctx, o)
}
