package relay

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/message"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/settle"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/sink"
)

// This file tells, while redelivery is to be expected, events that come again from others. An id alone does not: an
// application can use ids again, say after TRUNCATE … RESTART IDENTITY. The place in the stream does.

// recognize finds out, while redelivery is to be expected, which of the inserts are journaled, parked or dead letters.
func (s *session) recognize(ctx context.Context, steps []step) error {
	if !s.lookup {
		return nil
	}
	var events []store.Sighting
	var of []int
	for i, st := range steps {
		if st.kind != stepInsert {
			continue
		}
		if e := &st.delivery.Event; s.known.Find(e) == nil {
			events = append(events, store.Sighting{Source: e.Source, ID: e.ID, Position: e.Position,
				Committed: st.delivery.Committed})
			of = append(of, i)
		}
	}
	if len(events) == 0 {
		return nil
	}
	found, err := s.r.store.Recognize(ctx, events)
	if err != nil {
		return fmt.Errorf("look up redelivered events: %w", err)
	}
	for i, recognized := range found {
		steps[of[i]].recognized = recognized
	}
	return nil
}

// comesAgain reports whether an event is already in flight or recorded. One in flight counts for this session's ledger
// from now.
func (s *session) comesAgain(st *step) bool {
	e := &st.delivery.Event
	if earlier := s.known.Find(e); earlier != nil {
		s.term.inflight.Attach(earlier, e, s.counting) // false: it has become terminal in the meantime
		s.r.meter.Stream.SkippedMemory.Inc()
		return true
	}
	if st.recognized == store.Recorded {
		s.r.meter.Stream.SkippedJournal.Inc()
		return true
	}
	return false
}

// recognizeGone journals those of the inserts that were sent before an unclean stop and are gone from their topics; see
// [recovery.Sent]. From then on they are recorded.
func (s *session) recognizeGone(ctx context.Context, steps []step) error {
	if s.term.sent.Empty() {
		return nil
	}
	var gone []store.Published
	var of []int
	for i, st := range steps {
		if st.kind != stepInsert || st.recognized == store.Recorded || s.known.Find(&st.delivery.Event) != nil {
			continue
		}
		if p, is := s.gone(&st.delivery.Event); is {
			gone, of = append(gone, p), append(of, i)
		}
	}
	if err := s.journalGone(ctx, gone); err != nil {
		return err
	}
	for _, i := range of {
		steps[i].recognized = store.Recorded
	}
	return nil
}

// gone reports whether the event was sent, although nothing is recorded of it, and what is to be journaled of it then.
func (s *session) gone(e *outbox.Event) (p store.Published, is bool) {
	var rec sink.Record
	if _, _, reason := s.of(e).router.Encode(e, &rec, message.Marks{}); reason != nil {
		return p, false
	}
	mark := e.Position.Mark()
	if e.Position.Table {
		mark = e.Position.RowMark(true, false)
	}
	partition, passed := s.term.sent.Passed(rec.Lane(), e.Position)
	return store.Published{Source: e.Source, ID: bytes.Clone(e.ID), Topic: rec.Topic, Partition: partition, Offset: -1,
		Mark: mark}, passed
}

// journalGone journals events that are gone from their topics.
func (s *session) journalGone(ctx context.Context, gone []store.Published) error {
	if len(gone) == 0 {
		return nil
	}
	if err := s.r.store.Settle(ctx, gone, nil); err != nil {
		return fmt.Errorf("journal %d events that are gone from their topics: %w", len(gone), err)
	}
	s.r.log.Warn().Int("events", len(gone)).Str("topic", gone[0].Topic).Bytes("first_id", gone[0].ID).
		Msg("events were sent before the unclean stop and are gone from their topics, which hold later ones of their keys: " +
			"journaled without an offset, and not sent again behind these")
	return nil
}

// reused takes note of an event that is sent although its id is recorded. The log names the first of a session; what
// may be a duplicate is an alarm.
func (s *session) reused(d *settle.Delivery, r store.Recognition) {
	s.reusedIDs++
	if s.reusedIDs == 1 {
		s.r.log.Warn().Bytes("id", d.Event.ID[:min(len(d.Event.ID), 200)]).Stringer("position", d.Event.Position).
			Msg("the id of this event was used before, by another event that is recorded: sending this one")
	}
	if r != store.Unsure {
		return
	}
	topic := d.Record.Topic
	if s.unsure == nil {
		s.unsure = map[string][]string{}
	}
	if ids := s.unsure[topic]; len(ids) < unsureNamed {
		s.unsure[topic] = append(ids, fmt.Sprintf("%.200q", d.Event.ID))
	}
	s.r.alarms.Raise(sink.Alarm{Kind: sink.AlarmIDsReused, Topic: topic, Partition: sink.WholeTopic,
		Text: fmt.Sprintf("these ids are recorded, and the server's clock does not tell whether of the events that came "+
			"now or of others that had the ids before; the events were sent, perhaps a second time: %s",
			strings.Join(s.unsure[topic], ", "))})
}

// leftAside names rows that the catch-up does not publish by an alarm for each topic.
func (s *session) leftAside(left []store.Aside) {
	ids := map[string][]string{}
	for _, a := range left {
		ids[a.Topic] = append(ids[a.Topic], fmt.Sprintf("%.200q", a.ID))
	}
	for topic, named := range ids {
		s.r.alarms.Raise(sink.Alarm{Kind: sink.AlarmIDsReused, Topic: topic, Partition: sink.WholeTopic,
			Text: fmt.Sprintf("rows with these ids were made after events with the same ids were listed, parked, or became "+
				"dead letters; the catch-up has not sent them. Compare them with cdc-relay find; give rows that are other "+
				"events new ids, by inserting them again: %s", strings.Join(named, ", "))})
	}
}

// unsureNamed bounds the ids that an alarm names.
const unsureNamed = 20
