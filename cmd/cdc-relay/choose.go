package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/cdc-relay/cdc-relay/store"
)

// chooseFlags choose dead letters or parked events; all that are given must hold.
type chooseFlags struct {
	IDs       []string `arg:"" optional:"" name:"id" help:"Ids of events."`
	Key       *string  `help:"Only of this message key." placeholder:"KEY" env:"KEY"`
	Type      string   `help:"Only of this event type." placeholder:"TYPE" env:"TYPE"`
	Class     string   `help:"Only of this error class: transient, permanent or blocked." placeholder:"CLASS" env:"CLASS"`
	Topic     string   `help:"Only for this topic." placeholder:"TOPIC" env:"TOPIC"`
	OlderThan string   `help:"Only those that died, or were parked, longer ago: 90s, 24h, 7d." placeholder:"AGE" env:"OLDER_THAN"`
	NewerThan string   `help:"Only those that died, or were parked, more recently." placeholder:"AGE" env:"NEWER_THAN"`
}

// allFlag is for what changes something: nothing chosen must not mean everything.
type allFlag struct {
	All bool `help:"All of them, as far as nothing else is chosen." env:"ALL"`
}

// filter notes what is wrong with the flags.
func (c chooseFlags) filter(a *app) store.Filter {
	f := store.Filter{IDs: c.IDs, Key: c.Key, Type: c.Type, Class: c.Class, Topic: c.Topic}
	a.oneOf("--class", c.Class, store.Classes)
	for _, age := range []struct {
		flag, text string
		into       *store.Age
	}{{"--older-than", c.OlderThan, &f.OlderThan}, {"--newer-than", c.NewerThan, &f.NewerThan}} {
		if age.text == "" {
			continue
		}
		var err error
		if *age.into, err = store.ParseAge(age.text); err != nil {
			a.wrong(age.flag, fmt.Sprintf("found %q", age.text), "a duration above zero such as 90s, 24h or 7d")
		}
	}
	return f
}

// toChange is the filter of a command that changes something.
func (c chooseFlags) toChange(a *app, all allFlag) store.Filter {
	f := c.filter(a)
	f.All = all.All
	if f.Criteria() == "" && len(a.mistakes) == 0 { // an age that cannot be read chooses something
		a.wrong("", "nothing is chosen", "ids, --key, --type, --class, --topic, --older-than, --newer-than, or --all")
	}
	return f
}

// pageFlags are those of lists.
type pageFlags struct {
	Limit int    `help:"How many at once, 1 to 1000." default:"50" env:"LIMIT"`
	After string `help:"Go on behind the cursor that the page before ended with." placeholder:"CURSOR" env:"AFTER"`
	All   bool   `help:"All pages; nothing needs to be chosen." env:"ALL"`
}

const longestList = 1000

func (p pageFlags) check(a *app) {
	if p.Limit < 1 || p.Limit > longestList {
		a.wrong("--limit", fmt.Sprintf("found %d", p.Limit), fmt.Sprintf("1 to %d", longestList))
	}
}

// printPage prints one page of a list, or with --all every page: the columns' names, then a line for each item.
func printPage[T any](a *app, choose chooseFlags, p pageFlags, none, columns string,
	read func(ctx context.Context, st *store.Store, f store.Filter, after string, limit int) (store.Page[T], error), line func(w io.Writer, item *T, now time.Time)) error {
	filter := choose.filter(a)
	p.check(a)
	ctx, stop := stoppable(context.Background(), func() {})
	defer stop()
	st, _, err := a.openTables(ctx)
	if err != nil {
		return err
	}
	defer st.Close()
	if p.All {
		p.Limit = longestList // of one look; all of them are printed
	}
	page, err := read(ctx, st, filter, p.After, p.Limit)
	for more := page.Next; err == nil && p.All && more != ""; {
		var next store.Page[T]
		next, err = read(ctx, st, filter, more, p.Limit)
		page.Items, page.Next, more = append(page.Items, next.Items...), next.Next, next.Next
	}
	if err != nil {
		return badFilter(err)
	}
	if a.cli.JSON {
		return a.printJSON(page)
	}
	if len(page.Items) == 0 {
		fmt.Fprintln(a.out, none)
		return nil
	}
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, columns)
	now := time.Now()
	for i := range page.Items {
		line(w, &page.Items[i], now)
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("write the output: %w", err)
	}
	if page.Next != "" {
		fmt.Fprintf(a.out, "more: --after %s\n", page.Next)
	}
	return nil
}

// ago is how long ago it was, short.
func ago(at, now time.Time) string {
	d := now.Sub(at)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", max(int(d.Seconds()), 0))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// text is a nullable text for people.
func text(s *string) string {
	if s == nil {
		return "-"
	}
	return plain(*s)
}
