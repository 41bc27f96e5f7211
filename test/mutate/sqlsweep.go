package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/test/mutate/seen"
)

// sqlTests is the folder whose tests must notice.
const sqlTests = "store"

// sweepSQL makes each change of the store's statements once, and runs the tests that come by it until one fails. It
// fails if one is noticed by none and not explained in test/mutate/survivors.tsv, or is explained there and noticed, or
// gone; or if the server refuses the statement, which says nothing about the tests.
func (b *bed) sweepSQL(ctx context.Context, o options) error {
	binary, err := b.buildSQL(ctx)
	if err != nil {
		return err
	}
	noticed, err := loadSQL(o.noticed)
	if err != nil {
		return err
	}
	explained, err := loadSQL(o.survivors)
	if err != nil {
		return err
	}
	var sum struct{ noticed, silent, left, wrong int }
	sum.wrong = len(gone(b.sites, explained, "in the list of survivors, and gone"))
	gone(b.sites, noticed, "")
	var sites []site
	for _, s := range b.sites {
		if !o.where.MatchString(s.where+" "+s.change) || o.only != "" && s.folder != o.only ||
			o.fresh && (noticed[s.key()] != "" || explained[s.key()] != "") {
			sum.left++
			continue
		}
		sites = append(sites, s)
	}
	if len(sites) == 0 {
		fmt.Printf("%d changes of SQL: none to try\n", len(b.sites))
		return saveSQL(o.noticed, noticed)
	}
	reaching, took, err := b.reachSQL(ctx, binary, o)
	if err != nil {
		return err
	}
	var mu sync.Mutex // guards what is counted and remembered
	l := likely{}
	for key, by := range noticed {
		l.note(key, by)
	}
	err = each(ctx, o.jobs, sites, func(s site, worker int) error {
		mu.Lock()
		reason, skip := explained[s.key()], o.over()
		names := l.first(s.key(), reaching[s.id], o.most)
		mu.Unlock()
		var by, refused string
		if !skip {
			var err error
			if by, refused, err = b.noticeSQL(ctx, binary, s, names, took, worker, o); err != nil {
				return err
			}
		}
		mu.Lock()
		defer mu.Unlock()
		switch {
		case skip:
			sum.left++
			return nil
		case refused != "":
			sum.wrong++
			fmt.Printf("%s\tis refused by the server in %s: %s\n", s.key(), by, refused)
		case by != "" && reason != "":
			sum.wrong++
			fmt.Printf("%s\tis noticed by %s: take it out of the list of survivors\n", s.key(), by)
		case by != "":
			sum.noticed++
			noticed[s.key()] = by
			l.note(s.key(), by)
			return saveSQL(o.noticed, noticed)
		case reason != "":
			sum.silent++
		default:
			sum.wrong++
			fmt.Printf("%s\tis noticed by none of %d tests (%s:%d)\n", s.key(), len(reaching[s.id]), s.file, s.line)
		}
		delete(noticed, s.key())
		return saveSQL(o.noticed, noticed)
	})
	if err != nil {
		return err
	}
	fmt.Printf("%d changes of SQL: %d noticed, %d survive and are explained, %d wrong, %d not tried\n", len(b.sites),
		sum.noticed, sum.silent, sum.wrong, sum.left)
	if sum.wrong > 0 {
		return fmt.Errorf("%d changes of SQL are noticed by no test and not explained, or wrongly so: see above", sum.wrong)
	}
	return nil
}

// key names a change in the lists.
func (s site) key() string { return s.folder + "\t" + s.where + "\t" + s.change }

// gone takes what is no change any more out of a list, returns it, and prints it if there is something to say.
func gone(sites []site, list map[string]string, say string) (keys []string) {
	there := map[string]bool{}
	for _, s := range sites {
		there[s.key()] = true
	}
	for _, key := range slices.Sorted(maps.Keys(list)) {
		if there[key] {
			continue
		}
		if say != "" {
			fmt.Printf("%s\t%s\n", key, say)
		}
		keys = append(keys, key)
		delete(list, key)
	}
	return keys
}

func (b *bed) buildSQL(ctx context.Context) (binary string, err error) {
	if err := os.MkdirAll(b.dir, 0o755); err != nil {
		return "", err
	}
	replace, err := b.weaveSQL()
	if err != nil {
		return "", err
	}
	if err := b.writeOverlay(replace, switchesText+sqlSwitchesText+b.filesText()); err != nil {
		return "", err
	}
	return b.tests(ctx, sqlTests)
}

// reachSQL runs each test alone, with nothing broken, to see by which changes it comes.
func (b *bed) reachSQL(ctx context.Context, binary string,
	o options) (reaching map[int][]string, took map[string]time.Duration, err error) {
	code, err := seen.Read(b.root)
	if err != nil {
		return nil, nil, err
	}
	var names []string
	for _, t := range code.Tests {
		if t.Package == sqlTests && o.match.MatchString(t.Name) {
			names = append(names, t.Name)
		}
	}
	reaching, took = map[int][]string{}, map[string]time.Duration{}
	reached := map[string]int{}
	var mu sync.Mutex // guards the maps
	note := func(file, name string) error {
		text, err := os.ReadFile(file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, id := range strings.Fields(string(text)) {
			n, err := strconv.Atoi(id)
			if err != nil {
				return fmt.Errorf("read %s: %w", file, err)
			}
			reached[name]++
			reaching[n] = append(reaching[n], name)
		}
		return nil
	}
	known := filepath.Join(b.dir, "reached", b.sumOfSites())
	if err = os.MkdirAll(known, 0o755); err != nil {
		return nil, nil, err
	}
	err = each(ctx, o.jobs, names, func(name string, worker int) error {
		start := time.Now()
		file := filepath.Join(known, name+"-"+b.sumOfTest(name))
		if known, err := os.ReadFile(file + ".took"); err == nil {
			mu.Lock()
			defer mu.Unlock()
			if took[name], err = time.ParseDuration(string(known)); err != nil {
				return err
			}
			return note(file, name)
		}
		output, failed, err := b.runSQL(ctx, binary, "trace "+file, []string{name}, o.within, worker, o)
		if err != nil {
			return err
		}
		if failed != "" {
			fmt.Printf("%s does not pass as it is:\n%.4000s\n", name, output)
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		took[name] = time.Since(start)
		if err := os.WriteFile(file+".took", []byte(took[name].String()), 0o644); err != nil {
			return err
		}
		return note(file, name)
	})
	// nobody knows who comes by what a view or a function has in it
	for _, f := range b.files {
		reaching[f.id] = slices.Clone(names)
	}
	said := map[string]map[string]bool{}
	for _, name := range names {
		_, comment := b.fileOf(sqlTests, name)
		said[name] = words(comment)
	}
	// A test whose words are those of the code looks at it, and so does one that comes by little; of those that come by
	// all, the quick ones are first.
	for _, s := range b.sites {
		price := func(name string) time.Duration {
			return time.Duration(reached[name])*time.Millisecond + took[name]/10 -
				time.Duration(min(common(said[name], s.where+" "+s.change), 3))*200*time.Millisecond
		}
		slices.SortFunc(reaching[s.id], func(x, y string) int { return cmp.Compare(price(x), price(y)) })
	}
	return reaching, took, err
}

// sumOfSites is another one when a change is another one, or has another number.
func (b *bed) sumOfSites() string {
	sum := sha256.New()
	for _, s := range b.sites {
		_, _ = io.WriteString(sum, s.key()+"\n")
	}
	return hex.EncodeToString(sum.Sum(nil)[:8])
}

// sumOfTest is another one when the file of the test is another one.
func (b *bed) sumOfTest(name string) string {
	file, _ := b.fileOf(sqlTests, name)
	text, _ := os.ReadFile(filepath.Join(b.root, sqlTests, file))
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// each does the work for every item, some of it at the same time, and stops at the first error.
func each[T any](ctx context.Context, jobs int, items []T, work func(item T, worker int) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	queue := make(chan T)
	var workers sync.WaitGroup
	for worker := range max(1, jobs) {
		workers.Go(func() {
			for item := range queue {
				if err := work(item, worker); err != nil {
					stop(err)
				}
			}
		})
	}
	for _, item := range items {
		if ctx.Err() != nil {
			break
		}
		queue <- item
	}
	close(queue)
	workers.Wait()
	return context.Cause(ctx)
}

// likely is how often a test noticed a change in a function, or one that reads the same.
type likely map[string]map[string]int

var alias, again = regexp.MustCompile(`\b\w+\.`), regexp.MustCompile(` \(\d+\)$`)

func (l likely) subjects(key string) []string {
	f := strings.Split(key, "\t")
	return []string{key, f[1], alias.ReplaceAllString(again.ReplaceAllString(f[2], ""), "")}
}

func (l likely) note(key, by string) {
	for _, subject := range l.subjects(key) {
		if l[subject] == nil {
			l[subject] = map[string]int{}
		}
		l[subject][by]++
	}
}

// first returns at most so many of the tests, those first that noticed this change, others of the function, and the
// same elsewhere.
func (l likely) first(key string, names []string, most int) []string {
	names = slices.Clone(names)
	price := map[string]int{}
	for n, subject := range l.subjects(key) {
		for _, name := range names {
			price[name] -= min(l[subject][name], 5) * []int{100, 1, 1}[n]
		}
	}
	slices.SortStableFunc(names, func(x, y string) int { return cmp.Compare(price[x], price[y]) })
	if most > 0 {
		names = names[:min(most, len(names))]
	}
	return names
}

// noticeSQL returns the test that fails with the change, "" when none does, and why the server refuses the statement if
// that is why.
func (b *bed) noticeSQL(ctx context.Context, binary string, s site, names []string, took map[string]time.Duration,
	worker int, o options) (by, refused string, err error) {
	order := strconv.Itoa(s.id)
	// a few at a time: the first mostly notice, and tests of one run come in the order of their files
	for at, next := 0, 1; at < len(names); at, next = at+next, 16*next {
		some := names[at:min(at+next, len(names))]
		within := o.within
		for _, name := range some {
			within += 3 * took[name]
		}
		output, by, err := b.runSQL(ctx, binary, order, some, within, worker, o)
		if err != nil || by != "" {
			return by, string(noStatement.Find(output)), err
		}
	}
	return "", "", nil
}

// noStatement finds in what a test said that the changed text is no statement any more: wrong syntax, a parameter that
// nothing uses or that has no type, an index for ON CONFLICT that is not there.
var noStatement = regexp.MustCompile(`(?m)^.*(SQLSTATE (42601|42P18|42P10|42804|42703|42P08|42803|08P01)|` +
	`expected \d+ arguments, got).*$`)

// warm is the directory of a worker's Postgres, which is made once.
func (b *bed) warm(worker int) string {
	// Where Postgres's user may go.
	return filepath.Join(os.TempDir(), fmt.Sprintf("cdc-relay-mutate-%d-%d", os.Getuid(), worker))
}

var failedTest = regexp.MustCompile(`(?m)^--- FAIL: (\w+)`)

// runSQL runs the tests until the first of them fails, which it names; a panic or a time-out counts for the first.
func (b *bed) runSQL(ctx context.Context, binary, order string, names []string, within time.Duration, worker int,
	o options) (output []byte, failed string, err error) {
	args := []string{"-test.run=^(" + strings.Join(names, "|") + ")$", "-test.count=1", "-test.failfast",
		"-test.timeout=" + within.String()}
	command := exec.CommandContext(ctx, binary, append(args, o.args...)...)
	command.Dir = filepath.Join(b.root, sqlTests)
	command.Env = append(b.environ(), switchVariable+"="+order, "CDC_RELAY_TEST_POSTGRES_DIR="+b.warm(worker))
	command.WaitDelay = 10 * time.Second
	output, err = command.CombinedOutput()
	switch m := failedTest.FindSubmatch(output); {
	case ctx.Err() != nil:
		return output, "", ctx.Err()
	case m != nil:
		return output, string(m[1]), nil
	// who knows what it left behind
	case bytes.Contains(output, []byte("panic: ")) || bytes.Contains(output, []byte("fatal error: ")):
		return output, names[0], os.RemoveAll(b.warm(worker))
	case err != nil:
		return output, "", fmt.Errorf("run %d tests with change %s: %w: %.2000s", len(names), order, err, output)
	}
	return output, "", nil
}
