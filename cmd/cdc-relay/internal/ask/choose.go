package ask

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/internal/store"
)

// Choose is the flags that choose dead letters or parked events; all that are given must hold.
type Choose struct {
	ChooseHeld
	Outbox
	Aggregate, Position, Code string
}

// AddTo implements cli.FlagSet.
func (c *Choose) AddTo(cmd *cobra.Command) {
	c.addEvents(cmd, "Only of this error class: transient, permanent or blocked.", store.Classes, "Only for this topic.")
	f := cmd.Flags()
	f.Var(&cli.TextFlag{Into: &c.Aggregate, Shown: "TYPE/ID", NotEmpty: true}, "aggregate", "Only of this aggregate.")
	f.Var(&cli.TextFlag{Into: &c.Position, NotEmpty: true}, "position", "Only at this position: 0/16B3748/2 as in "+
		"x-outbox-position, or 0/16B3748 for a whole transaction.")
	f.Var(&cli.TextFlag{Into: &c.Code, NotEmpty: true}, "code", "Only dead letters of this code; dlq reasons lists them.")
	c.addAges(cmd)
	c.Outbox.AddTo(cmd)
}

// Outbox is the flag that names one of several outboxes.
type Outbox struct{ Of string }

// AddTo implements cli.FlagSet.
func (o *Outbox) AddTo(cmd *cobra.Command) {
	cmd.Flags().Var(&cli.TextFlag{Into: &o.Of, Shown: "SCHEMA", NotEmpty: true}, "outbox", "With outbox.tables: of "+
		"the outbox in this schema.")
}

// ChooseHeld is the flags that choose events that a consumer holds back; all that are given must hold.
type ChooseHeld struct {
	IDs                                           []string
	Key, Type, Class, Topic, OlderThan, NewerThan string
}

// AddTo implements cli.FlagSet.
func (c *ChooseHeld) AddTo(cmd *cobra.Command) {
	c.addEvents(cmd, "Only of this class: permanent, exhausted, process, transient, replay or discarded.", nil,
		"Only from this topic.")
	c.addAges(cmd)
}

func (c *ChooseHeld) addEvents(cmd *cobra.Command, class string, classes []string, topic string) {
	cli.Arguments(cmd, "id", "Ids of events.", &c.IDs)
	f := cmd.Flags()
	f.StringVar(&c.Key, "key", "", "Only with this message key.")
	f.Var(&cli.TextFlag{Into: &c.Type, NotEmpty: true}, "type", "Only with this event type.")
	f.Var(&cli.TextFlag{Into: &c.Class, Offered: classes, NotEmpty: true}, "class", class)
	f.Var(&cli.TextFlag{Into: &c.Topic, NotEmpty: true}, "topic", topic)
}

func (c *ChooseHeld) addAges(cmd *cobra.Command) {
	cmd.Flags().Var(&cli.TextFlag{Into: &c.OlderThan, Shown: "AGE", NotEmpty: true}, "older-than",
		"Only events dead or parked for longer: 90s, 24h, 7d.")
	cmd.Flags().Var(&cli.TextFlag{Into: &c.NewerThan, Shown: "AGE", NotEmpty: true}, "newer-than",
		"Only events dead or parked more recently.")
}

// key returns the key that was given, which may be empty; nil: none.
func (c *ChooseHeld) key(a *cli.App) *string {
	if a.Given("key") {
		return &c.Key
	}
	return nil
}

// All is the flag of what changes something: nothing chosen must not mean everything.
type All struct{ All bool }

// AddTo implements cli.FlagSet.
func (a *All) AddTo(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&a.All, "all", false, "All of them; other filters still apply.")
}

// filter notes what is wrong with the flags.
func (c Choose) filter(a *cli.App) store.Filter {
	f := store.Filter{IDs: c.IDs, Key: c.key(a), Type: c.Type, Class: c.Class, Topic: c.Topic,
		Aggregate: c.Aggregate, Position: c.Position, Code: c.Code}
	a.OneOf("--class", c.Class, store.Classes)
	f.OlderThan, f.NewerThan = ages(a, c.OlderThan, c.NewerThan)
	return f
}

// ages reads both flags of an age.
func ages(a *cli.App, older, newer string) (olderThan, newerThan store.Age) {
	for _, age := range []struct {
		flag, text string
		into       *store.Age
	}{{"--older-than", older, &olderThan}, {"--newer-than", newer, &newerThan}} {
		if age.text == "" {
			continue
		}
		var err error
		if *age.into, err = store.ParseAge(age.text); err != nil {
			a.Wrong(age.flag, fmt.Sprintf("found %q", age.text), "a duration above zero such as 90s, 24h or 7d")
		}
	}
	return olderThan, newerThan
}

// ToList is the filter of a command that changes nothing.
func (c Choose) ToList(a *cli.App) store.Filter { return c.filter(a) }

// toChange is the filter of a command that changes something.
func (c Choose) toChange(a *cli.App, all All) store.Filter {
	f := c.filter(a)
	f.All = all.All
	if f.Criteria() == "" && len(a.Mistakes()) == 0 { // an age that cannot be read chooses something
		a.Wrong("", "nothing is chosen", "ids, --key, --type, --class, --topic, --code, --aggregate, --position, "+
			"--older-than, --newer-than, or --all")
	}
	return f
}

// Page is the flags of lists.
type Page struct {
	Limit int
	After string
	All   bool
}

// AddTo implements cli.FlagSet.
func (p *Page) AddTo(cmd *cobra.Command) {
	f := cmd.Flags()
	f.IntVar(&p.Limit, "limit", 50, "How many at once, 1 to 1000.")
	f.Var(&cli.TextFlag{Into: &p.After, Shown: "CURSOR"}, "after", "Continue after the cursor of the previous page.")
	f.BoolVar(&p.All, "all", false, "Print all pages; no filter is required.")
}

const longestList = 1000

// Check notes a page that is too large or none.
func (p Page) Check(a *cli.App) {
	if p.Limit < 1 || p.Limit > longestList {
		a.Wrong("--limit", fmt.Sprintf("found %d", p.Limit), fmt.Sprintf("1 to %d", longestList))
	}
}
