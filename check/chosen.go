package check

import (
	"context"
	"fmt"
	"slices"

	"github.com/cdc-relay/cdc-relay/config"
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

// columnsOf are the parts of the template by the columns' names in the table. A name means the event's own field first.
func columnsOf(parts []config.Part, cfg config.Config) []store.TopicPart {
	m := cfg.Outbox.Columns
	own := map[string]string{"id": m.ID, "aggregate_type": m.AggregateType, "aggregate_id": m.AggregateID,
		"event_type": m.EventType, "created_at": m.CreatedAt, "payload": m.Payload, "headers": m.Headers}
	list := make([]store.TopicPart, len(parts))
	for i, p := range parts {
		list[i] = store.TopicPart{Literal: p.Literal, Column: p.Column}
		if column := own[p.Column]; column != "" {
			list[i].Column = column
		}
	}
	return list
}
