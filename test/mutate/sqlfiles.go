package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// filesFolder has statements in files of their own, which are changed when they are read.
const filesFolder = "sql"

// fileSite is a change of a file of SQL.
type fileSite struct {
	id   int
	name string
	clause
}

// filesSQL finds what can be changed in the files of SQL. What makes an index stays: without its condition the index is
// larger, and answers the same.
func (b *bed) filesSQL() error {
	b.files = nil
	paths, err := filepath.Glob(filepath.Join(b.root, filesFolder, "*.sql"))
	if err != nil {
		return err
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		b.fileSQL(filepath.Base(path), string(text))
	}
	return nil
}

var comment = regexp.MustCompile(`--.*`)

func (b *bed) fileSQL(name, text string) {
	times := map[string]int{}
	at := 0
	text = comment.ReplaceAllStringFunc(text, func(c string) string { return strings.Repeat(" ", len(c)) })
	for statement := range strings.SplitAfterSeq(text, ";") {
		words := strings.Fields(statement)
		if !slices.Contains(words, "INDEX") && !slices.Contains(words, "COMMENT") {
			for _, c := range clauses(statement, func(rune) bool { return false }) {
				change := c.words(statement, nil)
				if times[change]++; times[change] > 1 {
					change += fmt.Sprintf(" (%d)", times[change])
				}
				c.from, c.to = c.from+at, c.to+at
				s := site{id: len(b.sites), folder: filesFolder, file: name, where: name, change: change,
					line: 1 + strings.Count(text[:c.from], "\n")}
				b.sites = append(b.sites, s)
				b.files = append(b.files, fileSite{s.id, name, c})
			}
		}
		at += len(statement)
	}
}

// filesText describes the files for the switches.
func (b *bed) filesText() string {
	var text strings.Builder
	text.WriteString("\nvar fileSites = map[int]fileSite{\n")
	for _, f := range b.files {
		fmt.Fprintf(&text, "\t%d: {%q, %d, %d, %q},\n", f.id, f.name, f.from, f.to, f.instead)
	}
	return text.String() + "}\n"
}
