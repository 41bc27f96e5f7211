package ask

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/access/secret"
	"github.com/cdc-relay/cdc-relay/internal/web/consumers"
	"github.com/cdc-relay/cdc-relay/relay"
)

// Filter notes what is wrong with the flags.
func (c ChooseHeld) Filter(a *cli.App) consumers.Filter {
	f := consumers.Filter{IDs: c.IDs, Key: c.key(a), Type: c.Type, Class: c.Class, Topic: c.Topic}
	f.OlderThan, f.NewerThan = ages(a, c.OlderThan, c.NewerThan)
	return f
}

// InboxOf says where consumers have their inbox: in a database of their own, or in the relay's.
func InboxOf(cfg config.Config) consumers.Config {
	if cfg.Inbox.URL != "" {
		return consumers.Config{
			URL: cfg.Inbox.URL, Password: secret.Of("inbox", cfg.Inbox.PasswordFile, nil), Schema: cfg.Inbox.Schema,
		}
	}
	at := relay.StoreConfig(cfg)
	return consumers.Config{URL: at.URL, Password: at.Password, Schema: cfg.Inbox.Schema}
}

// OpenInbox opens what consumers hold back.
func OpenInbox(ctx context.Context, a *cli.App) (*consumers.Desk, error) {
	cfg, err := a.Load(cli.NeedsPostgres)
	if err != nil {
		return nil, err
	}
	return consumers.Open(ctx, InboxOf(cfg))
}

// ChangeHeld is something to be done about events that a consumer holds back. It is done at once: no relay has a part
// in it.
type ChangeHeld struct {
	Kind, Past      string            // replay, replayed
	Consumer, State string            // billing, dead
	Confirm         func(int64) error // agrees to their number; nil: no one is asked

	ChooseHeld
	All
	Hand
}

// AddTo implements cli.FlagSet.
func (c *ChangeHeld) AddTo(cmd *cobra.Command) {
	c.State = consumers.Dead
	cmd.Flags().Var(&cli.TextFlag{Into: &c.Consumer, Shown: "NAME"}, "consumer", "Name of the consumer.")
	_ = cmd.MarkFlagRequired("consumer")
	cmd.Flags().Var(&cli.TextFlag{Into: &c.State, Offered: []string{consumers.Dead, consumers.Parked}}, "state",
		"Which: dead or parked.")
	c.ChooseHeld.AddTo(cmd)
	c.All.AddTo(cmd)
	c.Hand.AddTo(cmd)
}

// Do does it about what is chosen.
func (c *ChangeHeld) Do(a *cli.App) error {
	a.OneOf("--state", c.State, []string{consumers.Dead, consumers.Parked})
	filter := c.Filter(a)
	filter.All = c.All.All
	if filter.Criteria() == "" && len(a.Mistakes()) == 0 {
		a.Wrong("", "nothing is chosen", "ids, --key, --type, --class, --topic, --older-than, --newer-than, or --all")
	}
	ctx, stop := cli.UntilSignal(nil)
	defer stop()
	d, err := OpenInbox(ctx, a)
	if err != nil {
		return err
	}
	defer d.Close()
	n, at, err := d.Count(ctx, c.Consumer, c.State, filter)
	if err != nil {
		return BadFilter(err)
	}
	absent, err := c.absent(ctx, d, filter)
	if err != nil {
		return err
	}
	if c.Confirm != nil && n > 0 {
		if err := c.Confirm(n); err != nil {
			return err
		}
	}
	filter.Until = &at // what comes while a person thinks is not meant
	done, err := d.Do(ctx, consumers.Change{
		Kind: c.Kind, Consumer: c.Consumer, State: c.State, Filter: filter, Who: c.Name(), Note: c.Note,
	})
	if err != nil {
		return err
	}
	if a.JSON {
		err = a.PrintJSON(done)
	} else {
		cli.Fprintf(a.Out, "%s: %d of %d events %s\n", c.Kind, done.Done, done.Chosen, c.Past)
	}
	return errors.Join(err, notThere(absent))
}

// absent says of each id that was named, and is not among the events that are concerned, what it is.
func (c ChangeHeld) absent(ctx context.Context, d *consumers.Desk, f consumers.Filter) (whys []string, err error) {
	for _, id := range f.IDs {
		one := f
		one.IDs = []string{id}
		n, _, err := d.Count(ctx, c.Consumer, c.State, one)
		if err != nil {
			return nil, BadFilter(err)
		}
		if n > 0 {
			continue
		}
		w, err := d.Event(ctx, c.Consumer, id)
		switch {
		case errors.Is(err, consumers.ErrNoEvent):
			whys = append(whys, cli.Plain(id)+" is neither parked nor a dead letter")
		case err != nil:
			return nil, err
		case w.State == c.State:
			whys = append(whys, cli.Plain(id)+" does not match the other flags")
		case w.State == consumers.Dead || w.State == consumers.Parked || w.ResolvedBy == nil:
			whys = append(whys, fmt.Sprintf("%s is %s, and --state is %s", cli.Plain(id), w.State, c.State))
		default:
			whys = append(whys, fmt.Sprintf("%s was %s by %s", cli.Plain(id), w.State, cli.Text(w.ResolvedBy)))
		}
	}
	return whys, nil
}
