// Package recovery reads topics back after a process that died: what it had sent and not recorded is journaled, so
// that it is not sent once more. It reads from where the journal is complete, before anything else is sent.
//
// A topic can lose records between the crash and the start. An event that is gone counts as sent if a later one of its
// lane is there, because a lane is appended in order: see [Sent]. Sent again, it would stand behind the newer one.
// Where a lane has nothing left, nothing tells whether its events were sent; they are sent again, and counted as
// possible duplicates as far as the topic tells how much it has lost. What a broker appends of the dead process's last
// requests after this was read is the rest that no look can find.
//
// Beside its own, its tests are those of package relay, on real servers, and the simulator with its mutants.
package recovery

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rs/zerolog"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/sink"
)

const (
	// patience bounds the reading back of one topic, from when a broker answers. What is not read can only come twice,
	// never be lost.
	patience = 15 * time.Second
	// again is the pause before a topic is asked for once more.
	again = 200 * time.Millisecond
	// margin is by how much the clocks of relay, database and broker may differ where records are found by time.
	margin = 10 * time.Minute
	// batchSize is how many records are compared with the journal at once.
	batchSize = 1000
)

// Tables is the part of the store that a scan uses; package store documents its methods.
type Tables interface {
	Recognize(ctx context.Context, events []store.Sighting) ([]store.Recognition, error)
	Settle(ctx context.Context, published []store.Published, dead []store.Dead) error
	ParkedAmong(ctx context.Context, events []store.Sighting) (map[int]store.Lane, error)
	Portions(ctx context.Context, asks []store.Ask, limit, maxBytes int) ([]store.Portion, error)
	SettleRetried(ctx context.Context, published []store.Published) error
}

// Queue is the parked events.
type Queue interface {
	Parked() int64 // about how many
	AddParked(events int64)
	Revisit(lanes ...store.Lane) // they may be empty now
}

// Scan is one look at the topics. It is for one goroutine, and one run.
type Scan struct {
	Tailer sink.Tailer
	Tables Tables
	Queue  Queue
	Logger zerolog.Logger

	Headers [sink.TailHeaders]string // of a record; see the constants
	Origins Origins                  // of records of ours
	Stamped bool                     // records have the time of their event: they cannot be looked for by time
	Sent    *Sent                    // takes in what is found

	// What it has found, once Run has returned.
	Read   int   // records of ours
	Found  int   // of those, and of what is gone in front of them, what nothing was recorded of; it is now
	Unread int   // topics that could not be read
	Gone   int64 // records that the topics have lost, at most

	topic string
	gone  int64 // of the topic
	batch []store.Published
	seen  []store.Sighting // the events of batch
	err   error            // of Postgres: the session must end
}

// Of Scan.Headers: the names of the event's id, its source, of what only a copy of a dead letter has, its position, and
// of what only a late event has.
const (
	headerID = iota
	headerSource
	headerCopy
	headerPosition
	headerLate
)

// Run reads the topics, each from where the journal is complete. What cannot be read is said and counted; an error is
// one of Postgres or the context's.
func (s *Scan) Run(ctx context.Context, tails []store.TopicTail) error {
	begun := time.Now()
	for _, tail := range tails {
		s.topic = tail.Topic
		query := sink.TailQuery{Topic: tail.Topic, From: tail.From, Headers: s.Headers,
			Gone: func(atMost int64) { s.gone += atMost }}
		if !s.Stamped {
			query.Since = tail.Since.Add(-margin)
		}
		err := s.read(ctx, query)
		if err == nil || s.err != nil {
			err = s.flush(ctx)
		}
		s.countGone()
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case s.err != nil:
			return s.err
		case err != nil:
			if err := s.flush(ctx); err != nil {
				return err
			}
			if d, can := s.Tailer.(sink.Deferrer); can && d.Defer(ctx, query) {
				s.Logger.Warn().Err(err).Str("topic", tail.Topic).Msg("could not read the topic back after an unclean stop: " +
					"it is read before the next event is sent to it, so that none is duplicated")
				continue
			}
			s.Unread++
			s.Logger.Warn().Err(err).Str("topic", tail.Topic).Msg("could not read the topic back after an unclean stop: " +
				"events that were sent and not recorded may be duplicated")
		}
	}
	s.Logger.Info().Int("read", s.Read).Int("found", s.Found).Dur("took", time.Since(begun)).
		Msg("unclean stop: read the topics back and journaled what had been sent and not recorded")
	return nil
}

// countGone counts what the topic that was read has lost.
func (s *Scan) countGone() {
	if s.gone == 0 {
		return
	}
	s.Gone += s.gone
	s.Logger.Warn().Str("topic", s.topic).Int64("at_most", s.gone).Msg("records that were written since the journal was " +
		"complete are not in the topic any more (compaction, retention, deleted or consumed): events whose key has a " +
		"later one there are journaled as sent; other unrecorded events are sent again, possibly twice")
}

// read reads one topic, again while what is wrong may pass. While no broker answers it waits without an end: nothing
// could be sent either, and a start that did not wait would send everything twice that the crash left unrecorded.
func (s *Scan) read(ctx context.Context, query sink.TailQuery) error {
	waiting := false
	for deadline := time.Now().Add(patience); ; {
		bounded, cancel := context.WithTimeout(ctx, patience)
		s.gone = 0
		err := s.Tailer.Tail(bounded, query, func(rec sink.TailRecord) error { return s.take(ctx, rec) })
		cancel()
		unreachable := errors.Is(err, sink.ErrUnreachable)
		switch {
		case err == nil, s.err != nil, ctx.Err() != nil:
			return err
		case unreachable:
			deadline = time.Now().Add(patience)
			if !waiting {
				waiting = true
				s.Logger.Warn().Err(err).Str("topic", query.Topic).
					Msg("unclean stop: the topics must be read back before anything is sent, and no broker answers; waiting")
			}
		case !errors.Is(err, sink.ErrPassing), !time.Now().Before(deadline):
			return err
		}
		select {
		case <-time.After(again):
		case <-ctx.Done():
		}
	}
}

func (s *Scan) take(ctx context.Context, rec sink.TailRecord) error {
	id, origin := rec.Headers[headerID], rec.Headers[headerSource]
	// A dead letter's copy is no event; a longer id was sent by a version that did not look.
	if id == nil || len(id) > outbox.MaxID || rec.Headers[headerCopy] != nil {
		return nil
	}
	of, now, ours := s.Origins.of(string(origin))
	if !ours {
		return nil
	}
	s.Read++
	if now {
		s.Sent.note(outbox.Lane{Source: of, Topic: s.topic, Key: rec.Key}, &rec)
	}
	position, known := parsePosition(rec.Headers[headerPosition])
	if !known {
		position = outbox.Position{}
	}
	id = bytes.Clone(id)
	s.seen = append(s.seen, store.Sighting{Source: of, ID: id, Position: position})
	s.batch = append(s.batch, store.Published{
		Source: of, ID: id, Topic: s.topic, Partition: rec.Partition, Offset: rec.Offset, Mark: position.Mark(),
	})
	if len(s.batch) < batchSize {
		return nil
	}
	return s.flush(ctx)
}

func (s *Scan) flush(ctx context.Context) error {
	if len(s.batch) == 0 || s.err != nil {
		return s.err
	}
	err := s.flushParked(ctx)
	var recorded []store.Recognition
	if err == nil {
		recorded, err = s.Tables.Recognize(ctx, s.seen)
	}
	if err == nil {
		missing := s.batch[:0]
		for i, p := range s.batch {
			if recorded[i] != store.Recorded {
				if at := s.seen[i].Position; at.Table {
					p.Mark = at.RowMark(true, false)
				}
				missing = append(missing, p)
			}
		}
		s.Found += len(missing)
		if len(missing) > 0 {
			err = s.Tables.Settle(ctx, missing, nil)
		}
	}
	if err != nil {
		s.err = fmt.Errorf("journal what the topics hold: %w", err)
	}
	s.batch, s.seen = s.batch[:0], s.seen[:0]
	return s.err
}

// flushParked journals those of the batch that are parked: they were retried, and that was not recorded. An event that
// has the id of a parked one is not that one, unless it has its place.
func (s *Scan) flushParked(ctx context.Context) error {
	if s.Queue.Parked() <= 0 {
		return nil
	}
	found, err := s.Tables.ParkedAmong(ctx, s.seen)
	if err != nil || len(found) == 0 {
		return err
	}
	var retried []store.Published
	lanes := map[outbox.Identity]store.Lane{}
	for i, p := range s.batch {
		if lane, parked := found[i]; parked {
			retried, lanes[p.Identity()] = append(retried, p), lane
			s.Queue.Revisit(lane) // it may be empty now
		}
	}
	gone, err := s.passedParked(ctx, lanes, retried)
	if err != nil {
		return err
	}
	settled := append(retried, gone...)
	if err := s.Tables.SettleRetried(ctx, settled); err != nil {
		return err
	}
	s.Queue.AddParked(-int64(len(settled)))
	s.Found += len(settled)
	return nil
}

const (
	// passedRows and passedBytes bound what is read of a parked lane at once.
	passedRows  = 1000
	passedBytes = 4 << 20
)

// passedParked lists what is parked in front of events that were retried, as it was sent before them. Replays are not:
// they join a lane at their old place. Nor are late events, which have none.
func (s *Scan) passedParked(ctx context.Context, lanes map[outbox.Identity]store.Lane, retried []store.Published) (
	gone []store.Published, err error,
) {
	left := map[lane]map[string]bool{} // ids that were found, by lane, which is of one source
	for id, l := range lanes {
		if l.Key == nil {
			continue
		}
		of := laneOf(l)
		if left[of] == nil {
			left[of] = map[string]bool{}
		}
		left[of][id.ID] = true
	}
	partitions := map[outbox.Identity]int32{}
	for _, p := range retried {
		partitions[p.Identity()] = p.Partition
	}
	for l, ids := range left {
		var passed []store.Published // since the last event that was found
		ask := store.Ask{Lane: store.Lane{Source: l.source, Topic: l.topic, Key: []byte(l.key)}}
		for len(ids) > 0 {
			portions, err := s.Tables.Portions(ctx, []store.Ask{ask}, passedRows, passedBytes)
			if err != nil {
				return nil, err
			}
			if len(portions) == 0 || len(portions[0].Rows) == 0 {
				break // held by a dead letter: nothing of it moves
			}
			for i := range portions[0].Rows {
				row := &portions[0].Rows[i]
				switch id := string(row.Event.ID); {
				case ids[id]:
					delete(ids, id)
					for j := range passed {
						passed[j].Partition = partitions[outbox.Identity{Source: l.source, ID: id}]
					}
					gone, passed = append(gone, passed...), nil
				case !row.Replay && !row.Late:
					mark := row.Event.Position.Mark()
					if row.Event.Position.Table {
						mark = row.Event.Position.RowMark(false, false)
					}
					passed = append(passed, store.Published{Source: l.source, ID: []byte(id), Topic: l.topic, Offset: -1,
						Mark: mark})
				}
				ask.After = &row.Event.Position
			}
		}
	}
	return gone, nil
}
