package ask

import (
	"fmt"

	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/store"
)

// Choose is the flags that choose dead letters or parked events; all that are given must hold.
type Choose struct {
	IDs       []string `arg:"" optional:"" name:"id" help:"Ids of events."`
	Key       *string  `help:"Only of this message key." placeholder:"KEY"`
	Type      string   `help:"Only of this event type." placeholder:"TYPE" empty:"no"`
	Class     string   `help:"Only of this error class: transient, permanent or blocked." placeholder:"CLASS" values:"transient,permanent,blocked" empty:"no"`
	Topic     string   `help:"Only for this topic." placeholder:"TOPIC" empty:"no"`
	Aggregate string   `help:"Only of this aggregate." placeholder:"TYPE/ID" empty:"no"`
	Position  string   `help:"Only at this position: 0/16B3748/2 as in x-outbox-position, or 0/16B3748 for a whole transaction." placeholder:"POSITION" empty:"no"`
	OlderThan string   `help:"Only those that died, or were parked, longer ago: 90s, 24h, 7d." placeholder:"AGE" empty:"no"`
	NewerThan string   `help:"Only those that died, or were parked, more recently." placeholder:"AGE" empty:"no"`
}

// All is the flag of what changes something: nothing chosen must not mean everything.
type All struct {
	All bool `help:"All of them, as far as nothing else is chosen."`
}

// filter notes what is wrong with the flags.
func (c Choose) filter(a *cli.App) store.Filter {
	f := store.Filter{IDs: c.IDs, Key: c.Key, Type: c.Type, Class: c.Class, Topic: c.Topic,
		Aggregate: c.Aggregate, Position: c.Position}
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

// toChange is the filter of a command that changes something.
func (c Choose) toChange(a *cli.App, all All) store.Filter {
	f := c.filter(a)
	f.All = all.All
	if f.Criteria() == "" && len(a.Mistakes()) == 0 { // an age that cannot be read chooses something
		a.Wrong("", "nothing is chosen", "ids, --key, --type, --class, --topic, --aggregate, --position, "+
			"--older-than, --newer-than, or --all")
	}
	return f
}

// Page is the flags of lists.
type Page struct {
	Limit int    `help:"How many at once, 1 to 1000." default:"50"`
	After string `help:"Go on behind the cursor that the page before ended with." placeholder:"CURSOR"`
	All   bool   `help:"All pages; nothing needs to be chosen."`
}

const longestList = 1000

// Check notes a page that is too large or none.
func (p Page) Check(a *cli.App) {
	if p.Limit < 1 || p.Limit > longestList {
		a.Wrong("--limit", fmt.Sprintf("found %d", p.Limit), fmt.Sprintf("1 to %d", longestList))
	}
}
