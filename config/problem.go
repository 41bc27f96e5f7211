package config

import (
	"fmt"
	"strings"
)

// Problem is one thing that is wrong with the configuration.
type Problem struct {
	Key     string // the key, or what stands in its place; empty when the file as a whole is meant
	Where   string // file:line, environment variable or flag; empty when nothing set the key
	What    string // what was found, secrets masked
	Allowed string // what is allowed; empty when What says it
}

// String is one line: the key, where it was set, what was found, what is allowed.
func (p Problem) String() string {
	var b strings.Builder
	switch {
	case p.Key != "" && p.Where != "":
		fmt.Fprintf(&b, "%s (%s): ", p.Key, p.Where)
	case p.Key != "" || p.Where != "":
		fmt.Fprintf(&b, "%s: ", p.Key+p.Where)
	}
	b.WriteString(p.What)
	if p.Allowed != "" {
		b.WriteString("; allowed: " + p.Allowed)
	}
	return b.String()
}

// Problems are all problems of one [Load], in the order file, environment, flags, then by key. As an error it is a
// sentence with the count and a line for each.
type Problems []Problem

// Error is the list for people.
func (p Problems) Error() string {
	var b strings.Builder
	if len(p) == 1 {
		b.WriteString("the configuration has a problem:")
	} else {
		fmt.Fprintf(&b, "the configuration has %d problems:", len(p))
	}
	for _, problem := range p {
		b.WriteString("\n  " + problem.String())
	}
	return b.String()
}
