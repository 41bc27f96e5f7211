package main

import (
	"path/filepath"
	"testing"

	"github.com/cdc-relay/cdc-relay/test/mutate/seen"
)

// Breaks it catches: an explanation of SQL that is gone, which would excuse the next change that is called so; one of a
// change that a test notices; a test in the list that is not in the store's. It tells how many changes are in neither
// list, as nobody has tried them. Seen to fail with a reason for a change that is gone, with one for a change that is
// in both lists, and with the name of a test spelt wrong.
func TestTheListsOfSQLFitTheCode(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	b := &bed{root: root, dir: t.TempDir()}
	if _, err := b.weaveSQL(); err != nil {
		t.Fatal(err)
	}
	noticed, err := loadSQL("noticed.tsv")
	if err != nil {
		t.Fatal(err)
	}
	explained, err := loadSQL("survivors.tsv")
	if err != nil {
		t.Fatal(err)
	}
	code, err := seen.Read(root)
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]bool{}
	for _, test := range code.Tests {
		tests[test.Package+" "+test.Name] = true
	}
	for _, key := range gone(b.sites, explained, "") {
		t.Errorf("survivors.tsv: %s: there is no such change; explain what is there now", key)
	}
	for key, test := range noticed {
		if explained[key] != "" {
			t.Errorf("survivors.tsv: %s: %s notices it; take it out of one list", key, test)
		}
		if !tests[sqlTests+" "+test] {
			t.Errorf("noticed.tsv: %s: %s is no test of %s; `make mutate-sql` finds another", key, test, sqlTests)
		}
	}
	untried := 0
	for _, s := range b.sites {
		if noticed[s.key()] == "" && explained[s.key()] == "" {
			untried++
		}
	}
	t.Logf("%d changes of SQL: %d noticed, %d explained, %d in neither list: `make mutate-sql ARGS=-new` tries them",
		len(b.sites), len(noticed), len(explained), untried)
}
