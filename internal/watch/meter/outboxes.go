package meter

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cdc-relay/cdc-relay/internal/store"
)

const (
	outboxesLabelled = 100 // that have series of their own
	otherOutboxes    = "other"
	labelsAtOnce     = 10 // that a scrape gives away at least, of those that are left
)

// Outboxes counts events by outbox, where a slot has several. A slot may have thousands, so that only some have a label
// of their own, and what the others have is counted together.
//
//   - O1 A label that was given is kept: no counter goes back.
//   - O2 Labels go to the outboxes that had most events by then. Where there are more outboxes than labels, a scrape
//     gives at most half of what is left, so that those that are busy first don't get all of them.
//   - O3 What a scrape has shown as another outbox's stays there. Counts since the last scrape go where their outbox is
//     labelled now.
//
// It has some bytes for each outbox that had events. Any goroutine may call it.
type Outboxes struct {
	names     func() map[int32]string // schema.table by source; nil: there is one outbox
	published *prometheus.Desc
	dead      *prometheus.Desc

	mu       sync.Mutex
	seen     map[int32]*outboxCounts
	labelled map[string]*outboxSeries
	others   outboxSeries
}

// outboxCounts are those of a source.
type outboxCounts struct {
	published, dead uint64        // since the last scrape
	total           uint64        // all, before it is labelled
	series          *outboxSeries // nil: it is not labelled
}

// outboxSeries is what scrapes have shown.
type outboxSeries struct{ published, dead uint64 }

func (o *Outboxes) define(f factory, names func() map[int32]string) {
	published := definition{"outbox_published_by_outbox_total", "counter", "Events that are published and recorded, by " +
		"outbox, of up to 100; those of the others together, as other. Only with outbox.tables.", []string{"outbox"}}
	dead := definition{"outbox_failed_by_outbox_total", "counter", "Dead letters, by the same outboxes.",
		[]string{"outbox"}}
	if names == nil {
		*f.defined = append(*f.defined, published, dead)
		return
	}
	o.names, o.published, o.dead = names, published.desc(), dead.desc()
	o.seen, o.labelled = map[int32]*outboxCounts{}, map[string]*outboxSeries{}
	f.collector(o, published, dead)
}

// Journaled counts rows of a journal transaction. It costs nothing where there is one outbox.
func (o *Outboxes) Journaled(rows []store.Published) {
	if o.names == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	var c *outboxCounts
	for i := range rows {
		if i == 0 || rows[i].Source != rows[i-1].Source {
			c = o.of(rows[i].Source)
		}
		c.published++
		c.total++
	}
}

// Died counts a dead letter.
func (o *Outboxes) Died(source int32) {
	if o.names == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	c := o.of(source)
	c.dead++
	c.total++
}

func (o *Outboxes) of(source int32) *outboxCounts {
	c := o.seen[source]
	if c == nil {
		c = new(outboxCounts)
		o.seen[source] = c
	}
	return c
}

// Describe makes it a [prometheus.Collector], with Collect.
func (o *Outboxes) Describe(ch chan<- *prometheus.Desc) {
	ch <- o.published
	ch <- o.dead
}

// Collect gives labels, and shows all that was counted.
func (o *Outboxes) Collect(ch chan<- prometheus.Metric) {
	names := o.names()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.label(names)
	for _, c := range o.seen {
		to := c.series
		if to == nil {
			to = &o.others
		}
		to.published, to.dead = to.published+c.published, to.dead+c.dead
		c.published, c.dead = 0, 0
	}
	show := func(outbox string, s *outboxSeries) {
		ch <- prometheus.MustNewConstMetric(o.published, prometheus.CounterValue, float64(s.published), outbox)
		ch <- prometheus.MustNewConstMetric(o.dead, prometheus.CounterValue, float64(s.dead), outbox)
	}
	for outbox, s := range o.labelled {
		show(outbox, s)
	}
	show(otherOutboxes, &o.others)
}

// label gives labels to outboxes that have none. An outbox whose table was made again has another number by the same
// name, and the label of before.
func (o *Outboxes) label(names map[int32]string) {
	left := outboxesLabelled - len(o.labelled)
	var wait []int32
	if len(names) <= outboxesLabelled { // all show 0 from the start
		for source := range names {
			o.of(source)
		}
	} else {
		left = min(left, max(left/2, labelsAtOnce))
	}
	for source, c := range o.seen {
		if name := labelOf(names[source]); c.series == nil && name != "" {
			if c.series = o.labelled[name]; c.series == nil {
				wait = append(wait, source)
			}
		}
	}
	slices.SortFunc(wait, func(a, b int32) int {
		return cmp.Or(cmp.Compare(o.seen[b].total, o.seen[a].total), cmp.Compare(a, b))
	})
	for _, source := range wait {
		name := labelOf(names[source])
		if o.labelled[name] == nil {
			if left == 0 {
				return
			}
			o.labelled[name] = new(outboxSeries)
			left--
		}
		o.seen[source].series = o.labelled[name]
	}
}

// labelOf is a name as a label can have it. It has a dot, so that none is that of the others.
func labelOf(name string) string { return strings.ToValidUTF8(name, "\ufffd") }
