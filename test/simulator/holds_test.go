package simulator

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// facts are lines, one for each fact in the made-up tables, as testdata/holds.sql has them of the real ones.
type facts []string

func (f *facts) add(values ...any) { *f = append(*f, line(values...)) }

func (s *server) holds() []string {
	var f facts
	f.states(&s.db)
	f.events(&s.db)
	f.asides(&s.db)
	for source, rows := range s.db.spool {
		for _, r := range rows {
			f.add("spooled", source, r.Number, r.Era, uint64(r.Ends), r.Committed, r.Events, len(r.Data))
		}
	}
	for _, r := range s.table.rows {
		if r.visible && !r.deleted {
			f.add("row", r.seq, r.id, mark(r.marked))
		}
	}
	return f
}

// states collects the relay's states of slots.
func (f *facts) states(db *database) {
	for of, source := range db.sources {
		f.add("source", source, of.slot, of.oid)
	}
	for slot, st := range db.states {
		f.add("state", slot, st.Source, st.Phase, mark(st.Dirty), st.Confirmed, st.Timeline, db.epochs[slot],
			mark(st.CatchUpReady), st.Era, mark(st.CatchUpLate), st.TakenLSN)
		a := db.audits[slot]
		f.add("audit", slot, a.Horizon, a.SweptAt)
		if p := db.pauses[slot]; p != nil {
			f.add("pause", slot, p.Since, p.By)
		} else {
			f.add("pause", slot, "-", "-")
		}
		b := db.breakers[slot]
		if b == nil {
			b = &breakerState{}
		}
		said := b.said
		if !b.open {
			said = "-"
		}
		f.add("breaker", slot, mark(b.open), said, b.resumed)
	}
	for slot, topics := range db.offsets {
		for topic, o := range topics {
			f.add("topic", slot, topic)
			for partition, next := range o.next {
				f.add("offset", slot, topic, partition, next)
			}
		}
	}
	for _, r := range db.requests {
		var total any = "-"
		if r.Total != nil {
			total = *r.Total
		}
		f.add("request", r.ID, r.slot, r.Kind, r.StartedAt, r.FinishedAt, total, r.Done, mark(r.Error != ""))
	}
}

// events collects the published events, and the rest of a list.
func (f *facts) events(db *database) {
	for at, p := range db.journal {
		f.add("journal", at.source, at.id, p.Topic, p.Partition, p.Offset, db.journaled[at])
	}
	nth := map[int32]int{}
	for _, b := range db.batches {
		ids := slices.Sorted(slices.Values(b.ids))
		nth[b.source]++
		f.add("batch", b.source, nth[b.source], len(ids), strings.Join(ids, ","), b.lsn, b.at, mark(b.mirrored),
			mark(b.deleted))
	}
	for source, list := range db.catchUp {
		for _, l := range list {
			f.add("list", source, l.number, l.row.id)
		}
	}
}

// asides are parked events and dead letters.
func (f *facts) asides(db *database) {
	for at, p := range db.parked {
		var due any = p.due
		if p.whenWell {
			due = "when well"
		}
		f.add(append(append([]any{"parked", at.source, at.id, p.topic, p.key}, event(&p.event)...), p.event.CreatedAt,
			p.attempts, due, p.class, p.tried, mark(p.late), p.replay)...)
	}
	var deaths []int
	for _, d := range db.dead {
		deaths = append(deaths, d.number)
	}
	slices.Sort(deaths)
	for at, d := range db.dead {
		nth, _ := slices.BinarySearch(deaths, d.number)
		f.add(append(append([]any{"dead", at.source, at.id, d.topic, d.key}, event(&d.event)...), d.attempts, d.class, d.code,
			mark(d.keeps), d.at, mark(d.replayed), mark(d.discarded), d.replay, nth+1)...)
	}
}

func event(e *outbox.Event) []any {
	p := e.Position
	return []any{p.Epoch, mark(p.Table), p.Order, p.Index, e.AggregateType, e.AggregateID, e.EventType, e.Payload,
		e.Headers}
}

// mark is a boolean as Postgres prints it.
func mark(yes bool) string {
	if yes {
		return "t"
	}
	return "f"
}

// micros is a time as the lines of holds have it.
func micros(at time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return fmt.Sprint(at.UnixMicro())
}

func line(values ...any) string {
	var b strings.Builder
	for i, v := range values {
		if i > 0 {
			b.WriteByte(' ')
		}
		switch v := v.(type) {
		case time.Time:
			b.WriteString(micros(v))
		case *time.Time:
			if v == nil {
				b.WriteByte('-')
			} else {
				b.WriteString(micros(*v))
			}
		case []byte:
			if v == nil {
				b.WriteByte('-')
			} else {
				fmt.Fprintf(&b, "[%s]", v)
			}
		default:
			fmt.Fprint(&b, v)
		}
	}
	return b.String()
}
