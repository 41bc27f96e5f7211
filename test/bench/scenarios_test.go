package bench

import (
	"cmp"
	"fmt"
	"slices"
)

// The scenarios that others name, too.
const (
	drainBatches = "drain-100"    // 100 rows in a transaction
	drainSingles = "drain-1"      // one row in a transaction
	drainOneTx   = "drain-one-tx" // all rows in one transaction
	paced        = "paced"        // commits at a given rate: how soon
	atPace       = "pace"         // commits at a given rate: what they cost
)

// shape describes the events and their fate. In a scenario 0 and "" stand for the flags' values.
type shape struct {
	payload      int    // bytes of jsonb, about
	headers      bool   // in a column of the row, as tracing has them
	keys         int    // aggregates
	hotKeys      int    // of these, the ones that half of all events are of; 0 = all keys have as many
	types        int    // of aggregates, each with a topic; 0 is one, too
	partitions   int    // of each topic
	afterPublish string // outbox.after_publish
	parkedKeys   int    // further keys, each with an event that the broker has refused
	journal      int    // events that were published before
	randomIDs    bool   // version 4; else 7
	spool        string // drainSpooled, drainRestarted, drainSizes: where the events come from; else from the slot
}

// or gives what is not said in s by what others say.
func (s shape) or(others shape) shape {
	return shape{
		cmp.Or(s.payload, others.payload), cmp.Or(s.headers, others.headers), cmp.Or(s.keys, others.keys),
		cmp.Or(s.hotKeys, others.hotKeys),
		cmp.Or(s.types, others.types), cmp.Or(s.partitions, others.partitions), cmp.Or(s.afterPublish, others.afterPublish),
		cmp.Or(s.parkedKeys, others.parkedKeys), cmp.Or(s.journal, others.journal), cmp.Or(s.randomIDs, others.randomIDs),
		cmp.Or(s.spool, others.spool),
	}
}

func (s shape) String() string {
	keys := fmt.Sprintf("%d keys", s.keys)
	if s.hotKeys > 0 {
		keys += fmt.Sprintf(" (half of the events on %d of them)", s.hotKeys)
	}
	if s.parkedKeys > 0 {
		keys += fmt.Sprintf(", %d others parked", s.parkedKeys)
	}
	if s.randomIDs {
		keys += ", random ids"
	}
	if s.journal > 0 {
		keys += fmt.Sprintf(", a journal of %d events", s.journal)
	}
	partitions := fmt.Sprintf("%d partitions", s.partitions)
	if s.types > 1 {
		partitions = fmt.Sprintf("%d topics of %s", s.types, partitions)
	}
	payload := fmt.Sprintf("about %d bytes of jsonb", s.payload)
	if s.headers {
		payload += " and two headers"
	}
	return fmt.Sprintf("%s, %s, %s, after_publish %s", payload, keys, partitions, s.afterPublish)
}

// drain is a slot full of events that are read as fast as can be.
type drain struct {
	name                   string
	events, perTransaction int
	shape
}

// drains are the scenarios that empty a slot. A new one is a new row.
func (o options) drains() []drain {
	of := func(payload int) int { return min(o.events, max(o.largeBytes/payload, 1)) }
	return []drain{
		{drainBatches, o.events, 100, shape{}},
		{drainSingles, o.singles, 1, shape{}},
		{drainOneTx, o.events, o.events, shape{}},
		{"drain-hot-key", o.events, 100, shape{keys: 1}},
		{"drain-hot-keys", o.events, 100, shape{hotKeys: max(o.keys/100, 1)}},
		{"drain-200", o.events, 100, shape{partitions: 200}},
		{"drain-1000", o.events, 100, shape{partitions: 1000}},
		{"drain-20x50", o.events, 100, shape{types: 20, partitions: 50}},
		{"drain-headers", o.events, 100, shape{headers: true}},
		{"drain-10k", of(10_000), 100, shape{payload: 10_000}},
		{"drain-100k", of(100_000), 10, shape{payload: 100_000}},
		{"drain-delete", o.events, 100, shape{afterPublish: "delete"}},
		{"drain-keep", o.events, 100, shape{afterPublish: "keep"}},
		{"backlog", o.backlog, 100, shape{}},
		{"parked", o.events, 100, shape{parkedKeys: o.manyParked}},
		{drainLongV7, o.events, 100, shape{journal: o.longJournal}},
		{drainLongV4, o.events, 100, shape{journal: o.longJournal, randomIDs: true}},
		{drainSpooled, o.events, 100, shape{spool: drainSpooled}},
		{drainRestarted, o.events, 100, shape{spool: drainRestarted}},
		{drainSizes, o.events, 100, shape{spool: drainSizes, afterPublish: "keep"}},
	}
}

func (o options) drain(name string) (drain, bool) {
	all := o.drains()
	n := slices.IndexFunc(all, func(d drain) bool { return d.name == name })
	if n < 0 {
		return drain{}, false
	}
	return all[n], true
}

// scenarioNames is everything that -scenarios accepts.
var scenarioNames = func() (names []string) {
	for _, d := range (options{}).drains() {
		names = append(names, d.name)
	}
	return append(names, paced, atPace)
}()

// with is the stage with other events.
func (st *stage) with(s shape) *stage {
	own := *st
	own.shape = s.or(st.shape)
	if own.spool != "" {
		own.relaySettings = slices.Concat(spoolSettings, st.relaySettings)
	}
	if own.parkedKeys > 0 {
		own.relaySettings = slices.Concat(parkingSettings, st.relaySettings)
	}
	return &own
}
