package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

	"github.com/cdc-relay/cdc-relay/test/mutate/seen"
)

// sqlTests is the folder whose tests must notice.
const sqlTests = "store"

// sweepSQL drops each condition, each lock and each level of a commit of the store's statements once, and runs the
// tests that come by it until one fails. It fails if one is noticed by none and not explained in
// test/mutate/survivors.tsv, or is explained there and noticed, or gone.
func (b *bed) sweepSQL(ctx context.Context, o options) error {
	binary, err := b.buildSQL(ctx)
	if err != nil {
		return err
	}
	reaching, took, err := b.reachSQL(ctx, binary, o)
	if err != nil {
		return err
	}
	memory := filepath.Join(b.dir, "noticed.json")
	noticedBy := map[string]string{} // by the change: the test that noticed it last time, which is asked first
	text, err := os.ReadFile(memory)
	if err == nil {
		err = json.Unmarshal(text, &noticedBy)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	explained, err := loadSurvivors(o.survivors)
	if err != nil {
		return err
	}
	var sum struct{ noticed, silent, left, wrong int }
	var mu sync.Mutex // guards what is counted and remembered
	err = each(ctx, o.jobs, b.sites, func(s site, worker int) error {
		key := s.folder + "\t" + s.where + "\t" + s.change
		mu.Lock()
		_, known := explained[key]
		delete(explained, key)
		last := noticedBy[key]
		mu.Unlock()
		by, skip := "", o.over() || !o.where.MatchString(s.where+" "+s.change) || o.only != "" && s.folder != o.only
		if !skip {
			var err error
			if by, err = b.noticeSQL(ctx, binary, s, reaching[s.id], took, last, worker, o); err != nil {
				return err
			}
		}
		mu.Lock()
		defer mu.Unlock()
		switch {
		case skip:
			sum.left++
		case by != "" && known:
			sum.wrong++
			fmt.Printf("%s %s: %s is noticed by %s: take it out of the list of survivors\n", s.folder, s.where, s.change, by)
		case by != "":
			sum.noticed++
			noticedBy[key] = by
			return remember(memory, noticedBy)
		case known:
			sum.silent++
		default:
			sum.wrong++
			fmt.Printf("%s\tis noticed by none of %d tests (%s:%d)\n", key, len(reaching[s.id]), s.file, s.line)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for key := range explained {
		sum.wrong++
		fmt.Printf("%s: in the list of survivors, and gone\n", key)
	}
	fmt.Printf("%d changes of SQL: %d noticed, %d survive and are explained, %d wrong, %d not tried\n", len(b.sites),
		sum.noticed, sum.silent, sum.wrong, sum.left)
	if sum.wrong > 0 {
		return fmt.Errorf("%d changes of SQL are noticed by no test and not explained, or wrongly so: see above", sum.wrong)
	}
	return nil
}

func remember(file string, noticedBy map[string]string) error {
	text, err := json.Marshal(noticedBy)
	if err == nil {
		err = os.WriteFile(file, text, 0o644)
	}
	return err
}

func (b *bed) buildSQL(ctx context.Context) (binary string, err error) {
	if err := os.MkdirAll(b.dir, 0o755); err != nil {
		return "", err
	}
	replace, err := b.weaveSQL()
	if err != nil {
		return "", err
	}
	if err := b.writeOverlay(replace, switchesText+sqlSwitchesText); err != nil {
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
	sum, err := sumOf(binary)
	if err == nil {
		err = os.MkdirAll(filepath.Join(b.dir, "reached", sum), 0o755)
	}
	if err != nil {
		return nil, nil, err
	}
	err = each(ctx, o.jobs, names, func(name string, worker int) error {
		start := time.Now()
		file := filepath.Join(b.dir, "reached", sum, name)
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
	// a test that comes by little looks at that; of those that come by all, the quick ones first
	for _, names := range reaching {
		slices.SortFunc(names, func(x, y string) int {
			return cmp.Compare(time.Duration(reached[x])*time.Millisecond+took[x]/10,
				time.Duration(reached[y])*time.Millisecond+took[y]/10)
		})
	}
	return reaching, took, err
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

// noticeSQL is the test that fails with the change, "" when none does. The one that did last time is asked first.
func (b *bed) noticeSQL(ctx context.Context, binary string, s site, names []string, took map[string]time.Duration,
	last string, worker int, o options) (string, error) {
	order := strconv.Itoa(s.id)
	if slices.Contains(names, last) {
		if _, by, err := b.runSQL(ctx, binary, order, []string{last}, o.within+3*took[last], worker, o); err != nil ||
			by != "" {
			return by, err
		}
	}
	if len(names) == 0 {
		return "", nil
	}
	if o.most > 0 && len(names) > o.most {
		names = names[:o.most]
	}
	within := o.within
	for _, name := range names {
		within += 3 * took[name]
	}
	_, by, err := b.runSQL(ctx, binary, order, names, within, worker, o)
	return by, err
}

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

// loadSurvivors reads which changes nobody notices, and why that is right: folder, function, change and reason, with
// tabs between.
func loadSurvivors(path string) (map[string]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	list := map[string]string{}
	for n, line := range strings.Split(string(text), "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.Split(line, "\t")
		if len(f) != 4 || strings.TrimSpace(f[3]) == "" {
			return nil, fmt.Errorf("%s:%d: want folder, function, change and reason, with a tab between", path, n+1)
		}
		list[strings.Join(f[:3], "\t")] = f[3]
	}
	return list, nil
}
