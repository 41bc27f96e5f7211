// Command budget knows how long the tests of each package take: it shares packages out among machines, and tells which
// have become slower. See docs/design.md, "Tests".
package main

import (
	"bufio"
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

//go:embed budgets.tsv
var table string

const (
	// usual is the budget of a package that is not in the table.
	usual = 10 * time.Second
	// slowest is how many tests are listed.
	slowest = 15
)

// budgets bounds how long each package's tests may take, by import path without the repository's.
type budgets map[string]time.Duration

func read(table string) (budgets, error) {
	b := budgets{}
	for line := range strings.Lines(table) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		unit, seconds, _ := strings.Cut(strings.TrimSpace(line), "\t")
		n, err := strconv.Atoi(seconds)
		if err != nil || n <= 0 || b[unit] > 0 {
			return nil, fmt.Errorf("budgets.tsv: %q is no package with seconds, or is there twice", line)
		}
		b[unit] = time.Duration(n) * time.Second
	}
	return b, nil
}

func (b budgets) of(unit string) time.Duration { return cmp.Or(b[unit], usual) }

// share divides the units into so many parts that take about equally long: the longest first, each to the part that
// has least. The order in which units are given does not matter.
func (b budgets) share(units []string, parts int) [][]string {
	units = slices.SortedFunc(slices.Values(units), func(x, y string) int {
		return cmp.Or(cmp.Compare(b.of(y), b.of(x)), strings.Compare(x, y))
	})
	shares, sums := make([][]string, parts), make([]time.Duration, parts)
	for _, unit := range units {
		least := slices.Index(sums, slices.Min(sums))
		shares[least], sums[least] = append(shares[least], unit), sums[least]+b.of(unit)
	}
	return shares
}

const repository = "github.com/cdc-relay/cdc-relay/"

// list are the packages of a module, by import path without the repository's; the root's own package has none.
func list(module string) ([]string, error) {
	command := exec.Command("go", "list", "./...")
	command.Dir = module
	command.Stderr = os.Stderr
	out, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("go list in %s: %w", module, err)
	}
	var units []string
	for path := range strings.FieldsSeq(string(out)) {
		units = append(units, strings.TrimPrefix(path, repository))
	}
	return units, nil
}

// shard prints one share of all modules' packages, a line for each: its module and its import path.
func (b budgets) shard(w io.Writer, which string, modules []string) error {
	var part, parts int
	if n, err := fmt.Sscanf(which, "%d/%d", &part, &parts); n != 2 || err != nil || part < 1 || part > parts {
		return fmt.Errorf("-shard %s: want 1/3, 2/3 or 3/3, or the like", which)
	}
	var all []string
	home := map[string]string{}
	for _, m := range modules {
		units, err := list(m)
		if err != nil {
			return err
		}
		for _, unit := range units {
			home[unit] = m
		}
		all = append(all, units...)
	}
	for _, unit := range b.share(all, parts)[part-1] {
		fmt.Fprintln(w, home[unit], repository+unit)
	}
	return nil
}

// took is what a test, or with no test a package, took.
type took struct {
	unit, test string
	time       time.Duration
}

// times reads what `go test -json` wrote.
func times(r io.Reader) (tests, packages []took, err error) {
	decoder := json.NewDecoder(bufio.NewReader(r))
	for {
		var e event
		switch err := decoder.Decode(&e); {
		case err == io.EOF:
			return tests, packages, nil
		case err != nil:
			return nil, nil, fmt.Errorf("read the tests' times: %w", err)
		}
		t := took{strings.TrimPrefix(e.Package, repository), e.Test, time.Duration(e.Elapsed * float64(time.Second))}
		switch {
		case e.Action != "pass" && e.Action != "fail":
		case e.Test == "":
			packages = append(packages, t)
		case !strings.Contains(e.Test, "/"):
			tests = append(tests, t)
		}
	}
}

// event is what `go test -json` says; see test2json.
type event struct {
	Action, Package, ImportPath, Test, Output string

	Elapsed float64 // seconds
}

// teller prints what go test prints without -json: what a test said when it has failed, or when its package has and the
// test has not ended.
type teller struct {
	out  io.Writer
	said map[test][]string
}

// test is a test at the top; what a subtest says is told with it.
type test struct{ unit, name string }

func (t teller) hear(e event) {
	name, _, _ := strings.Cut(e.Test, "/")
	n := test{cmp.Or(e.Package, e.ImportPath), name}
	switch {
	case e.Output != "" && name != "":
		t.said[n] = append(t.said[n], e.Output)
	case e.Output != "" && e.Output != "PASS\n":
		fmt.Fprint(t.out, e.Output)
	case e.Test != name: // the end of a part is not the test's
	case e.Action == "pass" || e.Action == "skip":
		delete(t.said, n)
	case e.Action == "fail" && name != "":
		t.tell(n)
	case e.Action == "fail":
		for other := range t.said {
			if other.unit == n.unit {
				t.tell(other)
			}
		}
	}
}

func (t teller) tell(n test) {
	for _, line := range t.said[n] {
		if !strings.HasPrefix(strings.TrimSpace(line), "=== ") { // RUN, PAUSE, CONT, NAME
			fmt.Fprint(t.out, line)
		}
	}
	delete(t.said, n)
}

// pass prints of what `go test -json` says what go test prints without it, and keeps the times.
func pass(in io.Reader, out, kept io.Writer) error {
	t := teller{out, map[test][]string{}}
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return nil
		} else if err != nil {
			return fmt.Errorf("read what the tests say: %w", err)
		}
		var e event
		if json.Unmarshal(line, &e) != nil {
			fmt.Fprintf(out, "%s", line) // of a tool that go test runs
			continue
		}
		t.hear(e)
		if e.Action == "pass" || e.Action == "fail" {
			if _, err := kept.Write(line); err != nil {
				return fmt.Errorf("keep the tests' times: %w", err)
			}
		}
	}
}

// report lists the slowest tests and the packages that took longer than their budget.
func (b budgets) report(w io.Writer, files []string) error {
	var tests, packages []took
	for _, name := range files {
		file, err := os.Open(name)
		if err != nil {
			return err
		}
		t, p, err := times(file)
		_ = file.Close()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		tests, packages = append(tests, t...), append(packages, p...)
	}
	longest := func(x, y took) int { return cmp.Compare(y.time, x.time) }
	slices.SortFunc(tests, longest)
	slices.SortFunc(packages, longest)
	fmt.Fprintln(w, "The slowest tests, those of a package at a time or side by side:")
	for _, t := range tests[:min(slowest, len(tests))] {
		fmt.Fprintf(w, "%7.1f s  %s %s\n", t.time.Seconds(), t.unit, t.test)
	}
	for _, p := range packages {
		if budget := b.of(p.unit); p.time > budget {
			fmt.Fprintf(w, "OVER ITS BUDGET: %s took %.0f s; on a quiet machine it may take %.0f "+
				"(test/budget/budgets.tsv)\n", p.unit, p.time.Seconds(), budget.Seconds())
		}
	}
	return nil
}

func main() {
	which := flag.String("shard", "1/1", "print the packages of one `share` of all, as 2/3, each behind its module")
	modules := flag.String("modules", ".", "the directories of all modules, with spaces between")
	times := flag.String("times", "", "instead: read the JSON files in this `directory`, and list what took long")
	keep := flag.String("keep", "", "instead: print what go test -json, at stdin, says; keep the times in this `file`")
	flag.Parse()
	b, err := read(table)
	switch {
	case err != nil:
	case *keep != "":
		var file *os.File
		if file, err = os.Create(*keep); err == nil {
			err = errors.Join(pass(os.Stdin, os.Stdout, file), file.Close())
		}
	case *times != "":
		var files []string
		if files, err = filepath.Glob(filepath.Join(*times, "*.json")); err == nil {
			err = b.report(os.Stdout, files)
		}
	default:
		err = b.shard(os.Stdout, *which, strings.Fields(*modules))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "budget:", err)
		os.Exit(1)
	}
}
