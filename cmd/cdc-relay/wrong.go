package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/config"
)

// wrong notes a mistake in a command's own flags or arguments. [app.load] tells of all of them, with those of the configuration.
func (a *app) wrong(flag, what, allowed string) {
	a.mistakes = append(a.mistakes, config.Problem{Key: flag, What: what, Allowed: allowed})
}

// oneOf notes a mistake if the value is given and is none of those that are allowed.
func (a *app) oneOf(flag, value string, allowed []string) {
	if value != "" && !slices.Contains(allowed, value) {
		a.wrong(flag, fmt.Sprintf("found %q", value), strings.Join(allowed, ", "))
	}
}

func (a *app) atLeast(flag string, found, least int) {
	if found < least {
		a.wrong(flag, fmt.Sprintf("found %d", found), fmt.Sprintf("%d or more", least))
	}
}

// notShorter notes a duration that is below the least.
func (a *app) notShorter(flag string, found, least time.Duration) {
	if found < least {
		a.wrong(flag, fmt.Sprintf("found %v", found), fmt.Sprintf("%v or more", least))
	}
}

func (a *app) positive(flag string, found time.Duration) {
	if found <= 0 {
		a.wrong(flag, fmt.Sprintf("found %v", found), "more than 0s")
	}
}

// wrongUsage is the error for mistakes of the command line only; nil without any.
func wrongUsage(mistakes config.Problems) error {
	switch len(mistakes) {
	case 0:
		return nil
	case 1:
		return usageError{errors.New(mistakes[0].String())}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "the command line has %d problems:", len(mistakes))
	for _, m := range mistakes {
		b.WriteString("\n  " + m.String())
	}
	return usageError{errors.New(b.String())}
}
