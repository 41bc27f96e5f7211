package outboxes

import (
	"context"
	"fmt"

	"github.com/cdc-relay/cdc-relay/internal/run/halt"
	"github.com/cdc-relay/cdc-relay/internal/store"
)

// This file has what a start looks up and creates.

// Memories lists what relays have recorded of the tables, under any slot.
func (t *Tables) Memories(ctx context.Context) ([]store.Memory, error) {
	return t.slot.MemoriesOf(ctx, t.names())
}

// names returns the names of the tables that exist.
func (t *Tables) names() (tables []store.Named) {
	for _, o := range t.present() {
		tables = append(tables, o.named())
	}
	return tables
}

// unclaimed returns a *halt.Error for a table that comes, and that another slot's relay has published from.
func (t *Tables) unclaimed(ctx context.Context, n store.Named) error {
	if t.config.AllowSecondSlot {
		return nil
	}
	memories, err := t.slot.MemoriesOf(ctx, []store.Named{n})
	if err != nil {
		return err
	}
	for _, m := range memories {
		if m.Slot == t.config.Slot || m.TableOID != n.OID || !m.SlotThere && !m.Recorded {
			continue
		}
		return &halt.Error{Code: halt.SecondSlot,
			Reason: fmt.Sprintf("table %s fits outbox.tables, and a relay publishes from it, or has, by slot %s", n.SQL(),
				m.Slot),
			Risk: "its events would be published by both",
			Remedy: fmt.Sprintf("let one relay publish it: take it out of publication %s or correct outbox.tables; if all "+
				"of it is to be published again, set postgres.allow_second_slot: true", t.config.Publication)}
	}
	return nil
}

// Migrate makes the relay's tables for ids of the type that the outboxes have.
func (t *Tables) Migrate(ctx context.Context) error {
	all := t.present()
	if len(all) == 0 {
		if _, err := t.Outbox(ctx); err != nil {
			return err
		}
		all = t.present()
	}
	return all[0].Migrate(ctx)
}

// CheckExpressions asks for each form of table whether the server takes what the configuration puts into SQL. Tables of
// which it does not are left out, unless it takes none.
func (t *Tables) CheckExpressions(ctx context.Context) error {
	checked := map[string]error{}
	for _, o := range t.present() {
		err, known := checked[o.form]
		if !known || o.form == "" {
			if err = o.CheckExpressions(ctx); err != nil {
				err = fmt.Errorf("outbox %s: %w", o.name(), err)
			}
			checked[o.form] = err
		}
		if err := t.spare(ctx, o, err); err != nil {
			return err
		}
	}
	return nil
}

// CreatePublication creates the publication of the tables that there are, if there is none of that name.
func (t *Tables) CreatePublication(ctx context.Context, name string) error {
	return t.slot.CreatePublicationOf(ctx, name, t.names())
}

// CheckPublication says what is wrong with the publication itself, as the first of its tables shows. What it lacks of
// others, Outbox has looked for. A table that was dropped since is no reason.
func (t *Tables) CheckPublication(ctx context.Context, name string) ([]store.Problem, error) {
	for looks := 0; ; looks++ {
		all := t.present()
		if len(all) == 0 {
			return nil, nil
		}
		problems, err := all[0].CheckPublication(ctx, name)
		if err == nil && len(problems) == 0 || looks == 2 {
			return problems, err
		}
		if _, err := t.Outbox(ctx); err != nil {
			return nil, err
		}
	}
}
