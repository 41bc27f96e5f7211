package check

import (
	"context"
	"fmt"
	"slices"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/outbox"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/store"
)

// chosenMost is how many topics of the table are compared with what the brokers show.
const chosenMost = 200

// chosenTopics are the topics that rows choose, and those that the relay has used. What cannot be read is left out: the
// look at the database has said why.
func chosenTopics(ctx context.Context, cfg config.Config, r *Report) []string {
	parts, err := config.ParseTemplate(cfg.Message.Topic)
	if err != nil {
		return nil
	}
	st, err := store.Open(ctx, relay.StoreConfig(cfg))
	if err != nil {
		return nil
	}
	defer st.Close()
	seen, err := st.SeenTopics(ctx, chosenMost)
	if err != nil {
		seen = nil // there are no tables yet
	}
	chosen, all, err := st.ChosenTopics(ctx, columnsOf(parts, cfg), chosenMost)
	if err == nil && !all {
		r.add(Warn, "topics of the rows", "the outbox is large: some of its rows were looked at",
			"the log of run names each topic that it lacks")
	}
	if len(chosen) == chosenMost {
		r.add(Warn, "topics of the rows",
			fmt.Sprintf("the rows choose %d topics or more: these were looked at", chosenMost), "")
	}
	chosen = append(chosen, seen...)
	slices.Sort(chosen)
	return slices.Compact(chosen)
}

// columnsOf are the parts of the template by the columns' names in the table.
func columnsOf(parts []config.Part, cfg config.Config) (list []outbox.Part) {
	for _, p := range parts {
		if p.Column == "" {
			list = append(list, outbox.Part(p))
			continue
		}
		for _, q := range cfg.Outbox.Columns.Of(p.Column) {
			list = append(list, outbox.Part(q))
		}
	}
	return list
}
