package main

import (
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
	if o.list {
		for _, s := range sites {
			fmt.Printf("%s\t%s:%d\n", s.key(), s.file, s.line)
		}
	}
	if o.list || len(sites) == 0 {
		fmt.Printf("%d changes of SQL: %d to try\n", len(b.sites), len(sites))
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
		var v verdict
		if !skip {
			var err error
			if v, err = b.noticeSQL(ctx, binary, s, names, took, worker, o); err != nil {
				return err
			}
		}
		mu.Lock()
		defer mu.Unlock()
		switch {
		case skip:
			sum.left++
			return nil
		case v.refused != "":
			sum.wrong++
			fmt.Printf("%s\tis refused by the server in %s: %s\n", s.key(), v.by, v.refused)
		case v.by != "" && reason != "":
			sum.wrong++
			fmt.Printf("%s\tis noticed by %s: take it out of the list of survivors\n", s.key(), v.by)
		case v.by != "":
			sum.noticed++
			noticed[s.key()] = v.by
			l.note(s.key(), v.by)
			return saveSQL(o.noticed, noticed)
		case v.unclear != "":
			sum.wrong++
			fmt.Printf("%s\tis not clear: %s fails without it, too: try again on a machine that is less busy\n", s.key(),
				v.unclear)
		case reason != "":
			sum.silent++
		default:
			sum.wrong++
			fmt.Printf("%s\tis noticed by none of %d tests (%s:%d)\n", s.key(), len(names), s.file, s.line)
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
		if t.Package == sqlTests && o.match.MatchString(t.Name) && (o.skip == nil || !o.skip.MatchString(t.Name)) {
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
		r, err := b.runSQL(ctx, binary, "trace "+file, []string{name}, o.within, worker, o)
		if err != nil {
			return err
		}
		if r.failed != "" {
			fmt.Printf("%s does not pass as it is:\n%.4000s\n", name, r.output)
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
	passing := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return took[name] == 0 })
	for _, f := range b.files {
		reaching[f.id] = slices.Clone(passing)
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

// likely is how often a test noticed a change in a function, or one that reads the same, or any.
type likely map[string]map[string]int

var alias, again = regexp.MustCompile(`\b\w+\.`), regexp.MustCompile(` \(\d+\)$`)

func (l likely) subjects(key string) []string {
	f := strings.Split(key, "\t")
	return []string{key, f[1], alias.ReplaceAllString(again.ReplaceAllString(f[2], ""), ""), ""}
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
// same elsewhere; then those that notice most at all.
func (l likely) first(key string, names []string, most int) []string {
	names = slices.Clone(names)
	price := map[string]int{}
	for n, subject := range l.subjects(key) {
		for _, name := range names {
			price[name] -= min(l[subject][name], []int{1, 5, 5, 999}[n]) * []int{100_000, 1_000, 1_000, 1}[n]
		}
	}
	slices.SortStableFunc(names, func(x, y string) int { return cmp.Compare(price[x], price[y]) })
	if most > 0 {
		names = names[:min(most, len(names))]
	}
	return names
}
