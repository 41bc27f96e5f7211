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
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// sqlTests is the folder whose tests must notice.
const sqlTests = "store"

// sweepSQL makes each change of the store's statements once, runs the tests that come by it until one fails, and prints
// the changes that none notices. It fails if the server refuses a statement, which says nothing about the tests.
func (b *bed) sweepSQL(ctx context.Context, o options) error {
	binary, err := b.buildSQL(ctx)
	if err != nil {
		return err
	}
	var sites []site
	for _, s := range b.sites {
		if o.where.MatchString(s.where+" "+s.change) && (o.only == "" || s.folder == o.only) {
			sites = append(sites, s)
		}
	}
	if o.list {
		for _, s := range sites {
			fmt.Printf("%s\t%s:%d\n", s.key(), s.file, s.line)
		}
	}
	if o.list || len(sites) == 0 {
		fmt.Printf("%d changes of SQL: %d to try\n", len(b.sites), len(sites))
		return nil
	}
	reaching, took, err := b.reachSQL(ctx, binary, o)
	if err != nil {
		return err
	}
	var mu sync.Mutex // guards what is counted and remembered
	var sum struct{ noticed, survive, unclear, refused, left int }
	l := likely{}
	err = each(ctx, o.jobs, sites, func(s site, worker int) error {
		mu.Lock()
		names, over := l.first(s.key(), reaching[s.id], o.most), o.over()
		mu.Unlock()
		var v verdict
		if !over {
			var err error
			if v, err = b.noticeSQL(ctx, binary, s, names, took, worker, o); err != nil {
				return err
			}
		}
		mu.Lock()
		defer mu.Unlock()
		switch {
		case over:
			sum.left++
		case v.refused != "":
			sum.refused++
			fmt.Printf("%s\tis refused by the server in %s: %s\n", s.key(), v.by, v.refused)
		case v.by != "":
			sum.noticed++
			l.note(s.key(), v.by)
		case v.unclear != "":
			sum.unclear++
			fmt.Printf("%s\tis not clear: %s fails without it, too\n", s.key(), v.unclear)
		default:
			sum.survive++
			fmt.Printf("%s\tsurvives %d tests (%s:%d)\n", s.key(), len(names), s.file, s.line)
		}
		return nil
	})
	if err != nil {
		return err
	}
	fmt.Printf("%d changes of SQL: %d noticed, %d survive, %d not clear, %d refused, %d not tried\n", len(b.sites),
		sum.noticed, sum.survive, sum.unclear, sum.refused, len(b.sites)-len(sites)+sum.left)
	if sum.refused > 0 {
		return fmt.Errorf("%d changes are not valid statements: see above", sum.refused)
	}
	return nil
}

// key names a change in the lists.
func (s site) key() string { return s.folder + "\t" + s.where + "\t" + s.change }

func (b *bed) buildSQL(ctx context.Context) (binary string, err error) {
	if err := os.MkdirAll(b.dir, 0o755); err != nil {
		return "", err
	}
	replace, err := b.weaveSQL()
	if err != nil {
		return "", err
	}
	if err := b.writeOverlay(replace, switchesText+b.filesText()); err != nil {
		return "", err
	}
	return b.tests(ctx, sqlTests)
}

// reachSQL runs each test alone, with nothing broken, to see by which changes it comes.
func (b *bed) reachSQL(ctx context.Context, binary string,
	o options) (reaching map[int][]string, took map[string]time.Duration, err error) {
	command := exec.CommandContext(ctx, binary, "-test.list", "^Test")
	command.Dir = filepath.Join(b.root, sqlTests)
	list, err := command.Output()
	if err != nil {
		return nil, nil, fmt.Errorf("list the tests of %s: %w", sqlTests, err)
	}
	var names []string
	for _, name := range strings.Fields(string(list)) {
		if o.match.MatchString(name) && !o.skip.MatchString(name) {
			names = append(names, name)
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
	// no one knows who comes by what a view or a function has in it
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

var word = regexp.MustCompile(`[A-Z]?[a-z]{3,}`)

// words are the words of a text, and of the names in it, without their endings.
func words(text string) map[string]bool {
	found := map[string]bool{}
	for _, w := range word.FindAllString(text, -1) {
		found[strings.ToLower(w[:min(len(w), 5)])] = true
	}
	for _, common := range []string{"test", "break", "seen", "fail", "that", "when", "what", "with", "error", "left",
		"retur", "without"} {
		delete(found, common)
	}
	return found
}

func common(a map[string]bool, text string) int {
	n := 0
	for w := range words(text) {
		if a[w] {
			n++
		}
	}
	return n
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
