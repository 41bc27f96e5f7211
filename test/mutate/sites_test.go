package main

import (
	"go/parser"
	"go/token"
	"strings"
	"testing"
)

const before = `package p // the package

// f is one of each.
func f(a, b int, c chan int) (int, error) {
	x := 1
	if a < b && !(x == 2) {
		x = a // the rest
	}
	for x = range 3 {
		continue
	}
	select {
	case c <- x - 1:
	default:
	}
	return x, g("a text", a)
}
`

const after = `package p; import mutant__ "github.com/cdc-relay/cdc-relay/test/mutate/mutant" // the package

// f is one of each.
func f(a, b int, c chan int) (int, error) { if mutant__.On(0) { return *new(int), *new(error) }; 
	x := 1
	if ((((mutant__.Less(3, a , b)) != mutant__.On(2))` +
	` && ((!(((x == 2) != mutant__.On(5)))) != mutant__.On(4))) != mutant__.On(1)) {
		if !mutant__.On(6) { x = a } // the rest
	}
	for x = range 3 {
		if !mutant__.On(7) { continue }
	}
	select {
	case c <- mutant__.Plus(8, x - 1):
	default:
	}
	return x, mutant__.Err(9, g(mutant__.Text(10, "a text"), a))
}

const _ = mutant__.Sites
`

// Breaks it catches: a switch that changes the code when it is off, a place without one. Seen to fail with the
// outer end put before the inner one, and with a comparison in parentheses left out.
func TestEachPlaceGetsOneSwitch(t *testing.T) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "p.go", before, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var sites []site
	w := &weaver{files: files, text: []byte(before), folder: "p", file: "p.go"}
	w.next = func(s site) (int, bool) {
		sites = append(sites, s)
		return len(sites) - 1, true
	}
	w.weave(file)
	if got := string(w.woven()); got != after {
		t.Errorf("woven: got\n%s\nwant\n%s", got, after)
	}
	var changes []string
	for _, s := range sites {
		changes = append(changes, s.change)
	}
	want := []string{
		"returns at once, with nothing done",
		"`a < b && !(x == 2)` -> `!(a < b && !(x == 2))`", "`a < b` -> `!(a < b)`", "`a < b`: `<` -> `<=`",
		"`!(x == 2)` -> `(x == 2)`",
		"`x == 2` -> `!(x == 2)`",
		"`x = a` left out", "`continue` left out", "`x - 1` -> `x - 1 + 1`", "`return x, g(\"a text\", a)` returns no error",
		"`\"a text\"` -> `\"\"`",
	}
	if got, want := strings.Join(changes, "\n"), strings.Join(want, "\n"); got != want {
		t.Errorf("changes: got\n%s\nwant\n%s", got, want)
	}
	if _, err := parser.ParseFile(files, "woven.go", w.woven(), 0); err != nil {
		t.Errorf("the woven file: %v", err)
	}
}
