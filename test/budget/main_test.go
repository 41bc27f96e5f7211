package main

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// modules are all modules of the repository, as the Makefile lists them.
func modules(t *testing.T) (units []string) {
	t.Helper()
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	_, after, found := strings.Cut(string(makefile), "\nMODULES := ")
	if !found {
		t.Fatal("the Makefile lists no MODULES")
	}
	first, _, _ := strings.Cut(after, "\n")
	for _, module := range append(strings.Fields(first), ".") {
		packages, err := list(filepath.Join("../..", module))
		if err != nil {
			t.Fatal(err)
		}
		units = append(units, packages...)
	}
	return units
}

// Breaks it catches: a package that no machine tests, or that two do. Seen to fail with the last unit left out, and
// with shares by the order in which units are given.
func TestSharesHaveEachPackageOnceWhateverTheOrder(t *testing.T) {
	b, err := read(table)
	if err != nil {
		t.Fatal(err)
	}
	units := modules(t)
	for parts := 1; parts <= 5; parts++ {
		shares := b.share(units, parts)
		all := slices.Concat(shares...)
		slices.Sort(all)
		want := slices.Sorted(slices.Values(units))
		if !slices.Equal(all, want) {
			t.Errorf("%d shares: got %v, want %v", parts, all, want)
		}
		for range 5 {
			rand.Shuffle(len(units), func(i, j int) { units[i], units[j] = units[j], units[i] })
			for n, share := range b.share(units, parts) {
				if !slices.Equal(share, shares[n]) {
					t.Fatalf("share %d of %d in another order: got %v, want %v", n+1, parts, share, shares[n])
				}
			}
		}
	}
}

// Two packages at a time, all of them, in 25 minutes. Breaks it catches: tests that are added until no one waits for
// them; a budget for a package that is gone. Seen to fail with 3,000 more seconds, and with a package misspelt.
func TestBudgetsAreOfPackagesThatExistAndFitIn25Minutes(t *testing.T) {
	b, err := read(table)
	if err != nil {
		t.Fatal(err)
	}
	units := modules(t)
	for unit := range b {
		if !slices.Contains(units, unit) {
			t.Errorf("budgets.tsv has %s, which is no package", unit)
		}
	}
	var sum time.Duration
	for _, share := range b.share(units, 2) {
		var longest time.Duration
		for _, unit := range share {
			longest += b[unit] // packages without servers take seconds together
		}
		sum = max(sum, longest)
	}
	if sum > 25*time.Minute {
		t.Errorf("all budgets, two packages at a time: %v, want at most 25 minutes", sum)
	}
}

// Breaks it catches: a slow package that is not named, one in its budget that is. Seen to fail with the comparison
// turned round.
func TestReportNamesSlowTestsAndPackagesOverTheirBudget(t *testing.T) {
	dir := t.TempDir()
	events := `{"Action":"pass","Package":"` + repository + `store","Test":"TestSlow","Elapsed":33.5}
{"Action":"pass","Package":"` + repository + `store","Test":"TestSlow/part","Elapsed":33}
{"Action":"pass","Package":"` + repository + `store","Elapsed":34}
{"Action":"pass","Package":"` + repository + `relay","Elapsed":34}
{"Action":"fail","Package":"` + repository + `sink","Elapsed":11}
`
	name := filepath.Join(dir, "t.json")
	if err := os.WriteFile(name, []byte(events), 0o600); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	b := budgets{"store": 30 * time.Second, "relay": 40 * time.Second}
	if err := b.report(&said, []string{name}); err != nil {
		t.Fatal(err)
	}
	for text, times := range map[string]int{
		"33.5 s  store TestSlow": 1, "TestSlow": 1, "store took 34 s; on a quiet machine it may take 30": 1,
		"sink took 11 s; on a quiet machine it may take 10": 1, "relay": 0,
	} {
		if got := strings.Count(said.String(), text); got != times {
			t.Errorf("%q: got %d times, want %d, in:\n%s", text, got, times, said.String())
		}
	}
}

// Breaks it catches: a failure of which nothing is told; what a test said that had not ended when its package did;
// times that are not kept. Seen to fail with output dropped whatever a test's end, with the packages' ends not looked
// at, and with nothing kept.
func TestWhatFailedIsToldAndTheRestIsNot(t *testing.T) {
	events := `{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestGood"}
{"Action":"output","Package":"p","Test":"TestGood","Output":"=== RUN   TestGood\n"}
{"Action":"output","Package":"p","Test":"TestGood","Output":"    it is fine\n"}
{"Action":"pass","Package":"p","Test":"TestGood","Elapsed":1}
{"Action":"output","Package":"p","Test":"TestBad","Output":"=== RUN   TestBad\n"}
{"Action":"output","Package":"p","Test":"TestBad/part","Output":"=== RUN   TestBad/part\n"}
{"Action":"output","Package":"p","Test":"TestBad/part","Output":"    x_test.go:3: the part is wrong\n"}
{"Action":"output","Package":"p","Test":"TestBad","Output":"--- FAIL: TestBad (2.00s)\n"}
{"Action":"output","Package":"p","Test":"TestBad/part","Output":"    --- FAIL: TestBad/part (2.00s)\n"}
{"Action":"fail","Package":"p","Test":"TestBad/part","Elapsed":2}
{"Action":"fail","Package":"p","Test":"TestBad","Elapsed":2}
{"Action":"output","Package":"p","Test":"TestHangs","Output":"panic: test timed out\n"}
{"Action":"output","Package":"q","Output":"ok  \tq\t0.1s\n"}
{"Action":"pass","Package":"q","Elapsed":0.1}
{"Action":"output","Package":"p","Output":"FAIL\tp\t3s\n"}
{"Action":"fail","Package":"p","Elapsed":3}
go: something else
`
	var said, kept strings.Builder
	if err := pass(strings.NewReader(events), &said, &kept); err != nil {
		t.Fatal(err)
	}
	want := `    x_test.go:3: the part is wrong
--- FAIL: TestBad (2.00s)
    --- FAIL: TestBad/part (2.00s)
ok  	q	0.1s
FAIL	p	3s
panic: test timed out
go: something else
`
	if said.String() != want {
		t.Errorf("told: got\n%s\nwant\n%s", said.String(), want)
	}
	tests, packages, err := times(strings.NewReader(kept.String()))
	if err != nil || len(tests) != 2 || len(packages) != 2 {
		t.Errorf("kept: got %v, %v, %v, want two tests and two packages", tests, packages, err)
	}
}
