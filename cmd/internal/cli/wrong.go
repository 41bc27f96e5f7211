package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/config"
)

// Wrong notes a mistake in a command's own flags or arguments. [App.Load] tells of all of them, with those of the
// configuration.
func (a *App) Wrong(flag, what, allowed string) {
	a.mistakes = append(a.mistakes, config.Problem{Key: flag, What: what, Allowed: allowed})
}

// OneOf notes a mistake if the value is given and is none of those that are allowed.
func (a *App) OneOf(flag, value string, allowed []string) {
	if value != "" && !slices.Contains(allowed, value) {
		a.Wrong(flag, fmt.Sprintf("found %q", value), strings.Join(allowed, ", "))
	}
}

// AtLeast notes a number that is below the least.
func (a *App) AtLeast(flag string, found, least int) {
	if found < least {
		a.Wrong(flag, fmt.Sprintf("found %d", found), fmt.Sprintf("%d or more", least))
	}
}

// NotShorter notes a duration that is below the least.
func (a *App) NotShorter(flag string, found, least time.Duration) {
	if found < least {
		a.Wrong(flag, fmt.Sprintf("found %v", found), fmt.Sprintf("%v or more", least))
	}
}

// Positive notes a duration that is not above zero.
func (a *App) Positive(flag string, found time.Duration) {
	if found <= 0 {
		a.Wrong(flag, fmt.Sprintf("found %v", found), "more than 0s")
	}
}

// wrongUsage is the error for mistakes of the command line only; nil without any.
func wrongUsage(mistakes config.Problems) error {
	switch len(mistakes) {
	case 0:
		return nil
	case 1:
		return Usage(errors.New(mistakes[0].String()))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "the command line has %d problems:", len(mistakes))
	for _, m := range mistakes {
		b.WriteString("\n  " + m.String())
	}
	return Usage(errors.New(b.String()))
}

// Mistakes are those that were noted so far.
func (a *App) Mistakes() config.Problems { return a.mistakes }
