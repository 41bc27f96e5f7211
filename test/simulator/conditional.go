package simulator

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/conditional"
	"github.com/cdc-relay/cdc-relay/sink"
)

// logDriver is streams that take an append only if they end where the writer believes, as one process reaches them. The
// reasoning is package conditional's own code, as it is in the drivers for NATS, Redis Streams and BullMQ; what those
// add, a stream's end and its entries asked for and appends sent, is made up.
type logDriver struct {
	*driver
	streams  sink.Nodes[*logStream]
	outboxes conditional.Outboxes
}

var (
	_ sink.Deferrer   = (*logDriver)(nil)
	_ sink.Leaver     = (*logDriver)(nil)
	_ sink.Recognizer = (*logDriver)(nil)
)

// logStream is one stream as package conditional sees it.
type logStream struct {
	p     *process
	name  string
	part  *clusterPartition
	log   *conditional.Log
	asked map[string]uint64 // how often, by what was asked; guarded by world.mu
}

// of is the stream of the topic, and its node. Called without mu.
func (d *logDriver) of(topic string) (*logStream, int32) {
	w, name := d.p.w, topic
	if w.profile.kind.oneStream {
		name = "all"
	}
	return d.streams.Of(name, func() *logStream {
		w.mu.Lock()
		defer w.mu.Unlock()
		s := &logStream{p: d.p, name: name, part: w.cluster.topics[topic].partitions[0], log: conditional.NewLog(&d.outboxes),
			asked: map[string]uint64{}}
		s.log.WentBack = func(was, is int64) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.violate("p%d says that %s ends at %d and had acknowledged %d", d.p.number, name, is, was)
		}
		return s
	})
}

// Node implements [sink.Driver].
func (d *logDriver) Node(topic string, _ int32) int32 {
	if n, _ := d.Partitions(topic); n == 0 {
		return -1
	}
	_, node := d.of(topic)
	return node
}

// Produce implements [sink.Driver].
func (d *logDriver) Produce(ctx context.Context, node int32, batches []*sink.Batch) {
	s := d.streams.At(node)
	s.log.Produce(ctx, s, batches)
	d.p.w.mu.Lock()
	for _, b := range batches {
		d.p.w.note("p%d %s, %d records: %s, %d written", d.p.number, b.Topic, len(b.Records), verdicts[b.Outcome.Verdict],
			b.Outcome.Written)
		if b.Outcome.Verdict == sink.Unknown {
			d.p.w.counts.UnknownRequests++
		}
	}
	d.p.w.mu.Unlock()
	if err := d.p.pass(ctx, "produce ends"); err != nil {
		unknown(batches, err)
	}
}

// Left implements [sink.Leaver].
func (d *logDriver) Left() {
	for _, s := range d.streams.All() {
		s.log.Forget()
	}
}

// Recognize implements [sink.Recognizer].
func (d *logDriver) Recognize(ours func(source string) bool) { d.outboxes.Recognize(ours) }

// Unclaimed implements [sink.Recognizer].
func (d *logDriver) Unclaimed() (topic string, since time.Time) {
	for _, s := range d.streams.All() {
		conditional.First(&topic, &since, s.name, s.log)
	}
	return topic, since
}

// end is the offset of the last entry. Called with mu held.
func (part *clusterPartition) end() int64 { return int64(len(part.log)) - 1 }

// dice are those of the next question of that kind. Called with mu held.
func (s *logStream) dice(what string) *dice {
	s.asked[what]++
	return s.p.w.dice(aboutAppend, uint64(s.p.number), about(s.name), about(what), s.asked[what])
}

// ask puts a question to the stream, which it answers early and is heard late, or answers late, or does not.
func (s *logStream) ask(ctx context.Context, what string, answer func(*dice)) error {
	p, w := s.p, s.p.w
	if err := p.pass(ctx, what); err != nil {
		return err
	}
	w.mu.Lock()
	roll := s.dice(what)
	pause, early := w.answerPause(roll), roll.chance(0.5)
	var err error
	switch {
	case w.cluster.down:
		err = errAway
	case s.part.leader < 0 || s.part.troubled, !w.calm && roll.chance(w.profile.notWritten):
		w.fault(questionFails)
		err = errTimeout
	case early:
		answer(roll)
	}
	w.mu.Unlock()
	if !p.sleep(ctx, pause) && ctx.Err() != nil {
		err = errors.Join(err, ctx.Err())
	}
	w.mu.Lock()
	if err == nil && !early && !p.dead {
		answer(roll)
	}
	w.mu.Unlock()
	if passed := p.pass(ctx, what+" ends"); passed != nil {
		return passed
	}
	return err
}

// End implements [conditional.Stream].
func (s *logStream) End(ctx context.Context) (end int64, err error) {
	err = s.ask(ctx, "end", func(*dice) {
		end = s.part.end()
		s.excuse()
		s.p.w.note("p%d asks for the end of %s: %d", s.p.number, s.name, end)
	})
	return end, err
}

// excuse forgives what stands in the stream now and the process could not read back: no one can know of it. Called with
// mu held.
func (s *logStream) excuse() {
	for _, p := range s.part.blind {
		if p == s.p {
			s.p.w.leave(s.part)
			return
		}
	}
}

// Behind implements [conditional.Stream].
func (s *logStream) Behind(ctx context.Context, end int64, each func(conditional.Found)) (int64, error) {
	var found []conditional.Found
	last, cut := end, false
	err := s.ask(ctx, "behind", func(roll *dice) {
		last = s.part.end()
		for i := end + 1; i <= last; i++ {
			if m := &s.part.log[i]; m.id != "" { // else it is gone
				source := m.tailRecord(s.p.w.server, 0, i).Headers[1]
				found = append(found, conditional.Found{Offset: i, Mark: m.mark, Source: string(source)})
			}
		}
		s.p.w.counts.ReadBehind += len(found)
		if cut = roll.chance(s.p.w.profile.notWritten) && !s.p.w.calm; cut {
			found = found[:roll.below(len(found)+1)]
		}
	})
	if err != nil {
		return end, err
	}
	if last < end {
		return last, conditional.ErrWentBack
	}
	for _, f := range found {
		each(f)
		end = f.Offset
	}
	if cut {
		return end, errTimeout
	}
	return last, nil
}

// Mark implements [conditional.Stream]: what does not differ between two relays that send the same event.
func (s *logStream) Mark(r *sink.Record) conditional.Mark {
	id, _ := r.Headers.Get("id")
	_, class := r.Headers.Get("x-outbox-error-class")
	return markOf(r.Topic, string(r.Key), string(id), fmt.Sprint(class, string(r.Value)))
}

// markOf is a digest of the parts.
func markOf(parts ...string) (m conditional.Mark) {
	digest := sha256.New()
	for _, part := range parts {
		digest.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		digest.Write([]byte(part))
	}
	copy(m[:], digest.Sum(nil))
	return m
}

// Tail implements [sink.Tailer], as the drivers for Redis and NATS do: the stream's end first, then its entries up to
// there. It leaves the log at that end.
func (d *logDriver) Tail(ctx context.Context, q sink.TailQuery, each func(sink.TailRecord) error) error {
	p, w := d.p, d.p.w
	w.mu.Lock()
	known, down := w.cluster.topics[q.Topic], w.cluster.down
	w.mu.Unlock()
	if known == nil || known.missing {
		return p.pass(ctx, "tail of no topic")
	}
	s, _ := d.of(q.Topic)
	if down {
		return errors.Join(sink.ErrUnreachable, errAway, p.pass(ctx, "tail without a broker"))
	}
	last := int64(0)
	if err := s.ask(ctx, "tail", func(*dice) { last = s.part.end() }); err != nil {
		return d.blind(s, q.Topic, errors.Join(sink.ErrPassing, err))
	}
	var found []sink.TailRecord
	var failed error
	err := s.ask(ctx, "entries", func(roll *dice) {
		w.counts.TailReads++
		found = s.entries(q, last)
		if roll.chance(w.profile.tailFails) && !w.calm {
			w.fault(tailFails)
			found = found[:roll.below(len(found)+1)]
			failed = one(roll, errTimeout, errors.Join(sink.ErrPassing, errTimeout))
		}
		w.note("p%d reads %s back up to %d: %d records, %v", p.number, q.Topic, last, len(found), failed)
	})
	if err != nil {
		return d.blind(s, q.Topic, errors.Join(sink.ErrPassing, err))
	}
	for _, r := range found {
		if err := each(r); err != nil {
			return err
		}
	}
	if failed != nil {
		return d.blind(s, q.Topic, failed)
	}
	w.mu.Lock()
	delete(s.part.blind, q.Topic)
	w.mu.Unlock()
	if err := s.log.Start(ctx, last); err != nil {
		return errors.Join(sink.ErrPassing, err)
	}
	return nil
}

// Defer implements [sink.Deferrer], as the drivers do: from where the topic is journaled on, if that is known.
func (d *logDriver) Defer(ctx context.Context, q sink.TailQuery) bool {
	from, known := q.From[0]
	if !known {
		return false
	}
	s, _ := d.of(q.Topic)
	if s.log.Defer(ctx, max(from, 1)-1) != nil {
		return false
	}
	d.p.w.mu.Lock()
	defer d.p.w.mu.Unlock()
	d.p.w.note("p%d puts reading %s back off, from %d on", d.p.number, q.Topic, from)
	if s.part.blind[q.Topic] == d.p {
		delete(s.part.blind, q.Topic)
	}
	return true
}

// blind notes that the topic's end could not be read back.
func (d *logDriver) blind(s *logStream, topic string, err error) error {
	w := d.p.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if !d.p.dead {
		s.part.blind[topic] = d.p
	}
	return err
}

// entries are the topic's, up to the last one. Called with mu held.
func (s *logStream) entries(q sink.TailQuery, last int64) (found []sink.TailRecord) {
	from, known := q.From[0]
	for offset := max(from, 1); offset <= last; offset++ {
		m := &s.part.log[offset]
		if m.topic != q.Topic || m.id == "" || !known && m.at.Before(q.Since) {
			continue
		}
		found = append(found, m.tailRecord(s.p.w.server, 0, offset))
	}
	return found
}
