package simulator

import (
	"context"
	"slices"

	"github.com/cdc-relay/cdc-relay/sink"
)

// Tail implements [sink.Tailer].
func (d *driver) Tail(ctx context.Context, q sink.TailQuery, each func(sink.TailRecord) error) error {
	p, w := d.p, d.p.w
	if err := p.pass(ctx, "tail"); err != nil {
		return err
	}
	w.mu.Lock()
	t := w.cluster.topics[q.Topic]
	roll := w.dice(aboutTail, uint64(p.number), about(q.Topic), uint64(p.serial))
	fails := roll.chance(w.profile.tailFails) && !w.calm
	if fails {
		w.fault(tailFails)
	}
	fails = fails || w.cluster.down
	if t == nil {
		w.mu.Unlock()
		return nil
	}
	w.counts.TailReads++
	var found []sink.TailRecord
	var err error
	for n, part := range t.partitions {
		part.readBy = max(part.readBy, p.serial)
		if fails && roll.chance(0.7) {
			w.leave(part)
			err = errTimeout
			continue
		}
		from, known := q.From[int32(n)]
		for offset := from; offset < int64(len(part.log)); offset++ {
			m := part.log[offset]
			if !known && m.at.Before(q.Since) || m.id == "" {
				continue
			}
			found = append(found, m.tailRecord(w.server, int32(n), offset))
		}
	}
	w.note("p%d reads %s back: %d records, %v", p.number, q.Topic, len(found), err)
	w.mu.Unlock()
	for _, r := range slices.All(found) {
		if failed := each(r); failed != nil {
			return failed
		}
	}
	if passed := p.pass(ctx, "tail ends"); passed != nil {
		return passed
	}
	return err
}
