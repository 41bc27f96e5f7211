package simulator

import (
	"context"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/conditional"
	"github.com/cdc-relay/cdc-relay/sink"
)

// scriptRecords is how many records one script appends.
const scriptRecords = 3

// troubled is an error that says whose it is.
type troubled struct {
	error
	whose sink.Trouble
}

func (t troubled) Trouble() sink.Trouble { return t.whose }

// transit is an append on its way: messages that each expect the one before, or one script. It is decided at once what
// the broker refuses of it, and when it arrives what it finds there.
type transit struct {
	s      *logStream
	roll   *dice
	serial int   // of the process's take-over when it was sent
	expect int64 // where the stream ends
	sent   []sent
	bad    int // the first that is refused, -1: none

	// What became of it; each is meant for who sent it, if that one hears of it.
	offsets []int64 // of the front that is written
	moved   bool    // the stream ends elsewhere
	refused bool    // sent[bad] was
}

type sent struct {
	message
	copyOf *row // a dead letter
}

// Portion implements [conditional.Stream]: all at once, message by message, or so many in a script.
func (s *logStream) Portion() int {
	if s.p.w.profile.kind.scripts {
		return scriptRecords
	}
	return 0
}

// Append implements [conditional.Stream].
func (s *logStream) Append(ctx context.Context, end int64, records []*sink.Record) conditional.Answer {
	p, w, asked := s.p, s.p.w, time.Now()
	lives := p.lives()
	if err := p.pass(ctx, "append"); err != nil {
		if lives { // it was killed when a part of it may have left
			w.mu.Lock()
			defer w.mu.Unlock()
			s.compose(end, records).cut(&conditional.Answer{})
		}
		return conditional.Answer{Verdict: sink.NotWritten, Err: err, Pause: true}
	}
	w.mu.Lock()
	w.judgeRequest(p, asked)
	s.excuse()
	for topic, blind := range s.part.blind {
		if blind == p {
			delete(s.part.blind, topic)
		}
	}
	t := s.compose(end, records)
	pause, early := w.answerPause(t.roll), t.roll.chance(0.5)
	a := s.trouble(records, t.roll)
	switch {
	case a.Verdict == sink.Unknown:
		t.cut(&a)
	case a.Verdict == sink.Unanswered && early:
		t.arrive(len(t.sent))
	}
	w.mu.Unlock()

	p.sleep(ctx, pause)
	w.mu.Lock()
	switch {
	case a.Verdict != sink.Unanswered:
	case p.dead || ctx.Err() != nil:
		if !early {
			t.cut(&a)
		}
		a = conditional.Answer{Verdict: sink.Unknown, Err: errTimeout, Pause: true}
	default:
		if !early {
			t.arrive(len(t.sent))
		}
		a = t.answer()
	}
	w.note("p%d appends %v to %s behind %d: %s, written %d, moved %v", p.number, t.sent, s.name, end, verdicts[a.Verdict],
		len(a.Offsets), a.Moved)
	w.mu.Unlock()
	if err := p.pass(ctx, "append ends"); err != nil {
		return conditional.Answer{Verdict: sink.Unknown, Err: err, Pause: true}
	}
	return a
}

// compose makes the records what is sent. Called with mu held.
func (s *logStream) compose(end int64, records []*sink.Record) *transit {
	w := s.p.w
	t := &transit{s: s, roll: s.dice("append"), serial: s.p.serial, expect: end, bad: -1}
	for i, rec := range records {
		s.part.numbers++
		m := sent{message: message{source: "ours", topic: rec.Topic, mark: s.Mark(rec), number: s.part.numbers}}
		if rec.Topic == w.profile.config.DLQ.Topic {
			m.copyOf = w.judgeCopy(s.p, rec)
			m.id, m.copy = m.copyOf.id, true
		} else if m.row = w.judgeSent(s.p, rec); m.row != nil {
			m.id = m.row.id
		}
		if t.bad < 0 && m.row.refused() {
			t.bad = i
		}
		t.sent = append(t.sent, m)
	}
	return t
}

// String is the event's id.
func (m sent) String() string { return m.id }

// trouble is the answer when it is not about the records; no verdict: there is none. Called with mu held.
func (s *logStream) trouble(records []*sink.Record, roll *dice) conditional.Answer {
	w := s.p.w
	not := func(err error, whose sink.Trouble) conditional.Answer {
		return conditional.Answer{Verdict: one(roll, sink.NotWritten, sink.NotWritten, sink.Unknown),
			Err: troubled{err, whose}, Pause: true}
	}
	for _, rec := range records {
		if t := w.cluster.topics[rec.Topic]; t.forbidden {
			return conditional.Answer{Verdict: sink.NotWritten, Err: troubled{errForbidden, sink.TopicTrouble}, Pause: true}
		}
	}
	switch {
	case w.cluster.down:
		return not(errAway, sink.ClusterTrouble)
	case s.part.leader < 0:
		return not(errLeader, sink.ClusterTrouble)
	case s.part.troubled:
		return not(errReplicas, sink.PartitionTrouble)
	case w.calm:
	case roll.chance(w.profile.unknown):
		return conditional.Answer{Verdict: sink.Unknown, Pause: roll.chance(0.5),
			Err: troubled{errTimeout, one(roll, sink.ClusterTrouble, sink.PartitionTrouble)}}
	case roll.chance(w.profile.notWritten):
		w.fault(requestNotWritten)
		return conditional.Answer{Verdict: sink.NotWritten, Pause: roll.chance(0.5),
			Err: troubled{errReplicas, one(roll, sink.ClusterTrouble, sink.PartitionTrouble)}}
	}
	return conditional.Answer{}
}

// cut lets a part of it arrive, or all or nothing, now or later, and the answers to a part of that. Called with mu
// held.
func (t *transit) cut(a *conditional.Answer) {
	w := t.s.p.w
	reach := t.roll.below(len(t.sent) + 1)
	if w.profile.kind.scripts {
		reach = one(t.roll, 0, len(t.sent))
	}
	if t.bad >= 0 {
		reach = min(reach, t.bad) // else it could be taken later, when others have been refused often enough
	}
	if w.profile.kind.scripts && reach < len(t.sent) {
		reach = 0
	}
	if t.roll.chance(max(0.5, w.profile.lateAppend)) {
		w.after(t.roll.pause(0, one(t.roll, time.Second, 5*time.Second)), func() { t.arrive(reach) })
		return
	}
	t.arrive(reach)
	a.Offsets = t.offsets[:t.roll.below(len(t.offsets)+1)]
	if w.profile.kind.scripts {
		a.Offsets = nil // one answer for all
	}
}

// arrive appends as many of them as still fit where they are to stand. Called with mu held.
func (t *transit) arrive(reach int) {
	s, part := t.s, t.s.part
	scripts := s.p.w.profile.kind.scripts
	for i := range t.sent[:reach] {
		if i == 0 || !scripts {
			last := &part.log[part.end()]
			t.moved = part.end() != t.expect+int64(i) || i > 0 && last.number != t.sent[i-1].number
			t.refused = !t.moved && t.bad >= 0 && (i == t.bad || scripts)
			if t.moved {
				s.p.w.counts.Moved++
			}
			if t.moved || t.refused {
				return
			}
		}
		if i == 0 && scripts && s.p.w.profile.kind.gaps {
			part.log = append(part.log, make([]message, t.roll.below(3))...)
		}
		t.write(&t.sent[i])
	}
}

// write appends a message. Called with mu held.
func (t *transit) write(m *sent) {
	p, w, part := t.s.p, t.s.p.w, t.s.part
	m.at = time.Now()
	part.log = append(part.log, m.message)
	t.offsets = append(t.offsets, part.end())
	if m.copyOf != nil {
		m.copyOf.copied = true
		w.counts.Copies++
	} else if m.row != nil {
		w.counts.Records++
		p.appended++
		w.judgeAppended(p, t.serial, part, m.row)
	}
	if p.dead {
		w.counts.LateAppends++
	}
}

// answer returns the broker's answer. Called with mu held.
func (t *transit) answer() conditional.Answer {
	switch {
	case t.moved:
		return conditional.Answer{Offsets: t.offsets, Verdict: sink.NotWritten, Moved: true,
			Err: fmt.Errorf("the stream ends at %d", t.s.part.end())}
	case t.refused:
		guilty := t.sent[t.bad].row
		guilty.refusals++
		t.s.p.w.counts.Refusals++
		return conditional.Answer{Offsets: t.offsets, Verdict: sink.Refused, Guilty: t.bad, Reason: reasonOf(guilty)}
	}
	return conditional.Answer{Offsets: t.offsets, Verdict: sink.Accepted}
}
