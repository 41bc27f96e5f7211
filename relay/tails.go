package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/outbox"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/store"
)

const (
	// tailPatience bounds the reading back of one topic, from when a broker answers. What is not read can only come twice, never
	// be lost.
	tailPatience = 15 * time.Second
	// tailAgain is the pause before a topic is asked for once more.
	tailAgain = 200 * time.Millisecond
	// tailMargin is by how much the clocks of relay, database and broker may differ where records are found by time.
	tailMargin = 10 * time.Minute
	// tailBatch is how many records are compared with the journal at once.
	tailBatch = 1000
)

// readTails reads the topics back from where the journal is complete, after a process that died: what it had sent and not
// recorded is journaled now, so that the look-ups find it. Only an id that was read is skipped, so whatever a topic has
// lost since can cause a duplicate, and nothing else. What the broker appends of the dead process's last requests after
// this was read is the rest that no look can find.
func (s *session) readTails(ctx context.Context, tails []store.TopicTail) error {
	tailer, can := s.r.driver.(sink.Tailer)
	if !can {
		return nil
	}
	begun := time.Now()
	t := tailJournal{session: s, sources: ownSources(s.router.Source(), s.state)}
	for _, tail := range tails {
		t.topic = tail.Topic
		query := sink.TailQuery{Topic: tail.Topic, From: tail.From, Headers: s.router.TailHeaders()}
		if !s.router.StampsCreatedAt() {
			query.Since = tail.Since.Add(-tailMargin)
		}
		err := t.read(ctx, tailer, query)
		if err == nil || t.err != nil {
			err = t.flush(ctx)
		}
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case t.err != nil:
			return t.err
		case err != nil:
			if err := t.flush(ctx); err != nil {
				return err
			}
			s.r.meter.Stream.PossibleDuplicates.Add(uint64(s.r.c.Limits.MaxUnrecorded))
			s.r.log.Warn().Err(err).Str("topic", tail.Topic).Msg("could not read the topic back after an unclean stop: events that were sent and not recorded may come twice")
		}
	}
	s.r.log.Info().Int("read", t.records).Int("found", t.found).Dur("took", time.Since(begun)).
		Msg("unclean stop: read the topics back and journaled what had been sent and not recorded")
	return nil
}

// tailJournal journals records that the journal does not have.
type tailJournal struct {
	session *session
	sources []string // what records of ours may say
	topic   string
	batch   []store.Published
	records int // that were read
	found   int
	err     error // of Postgres: the session must end
}

// read reads one topic, again while what is wrong may pass. While no broker answers it waits without an end: nothing could be
// sent either, and a start that did not wait would send everything twice that the crash left unrecorded.
func (t *tailJournal) read(ctx context.Context, tailer sink.Tailer, query sink.TailQuery) error {
	waiting := false
	for deadline := time.Now().Add(tailPatience); ; {
		bounded, cancel := context.WithTimeout(ctx, tailPatience)
		err := tailer.Tail(bounded, query, func(rec sink.TailRecord) error { return t.take(ctx, rec) })
		cancel()
		unreachable := errors.Is(err, sink.ErrUnreachable)
		switch {
		case err == nil, t.err != nil, ctx.Err() != nil:
			return err
		case unreachable:
			deadline = time.Now().Add(tailPatience)
			if !waiting {
				waiting = true
				t.session.r.log.Warn().Err(err).Str("topic", query.Topic).Msg("unclean stop: the topics must be read back before anything is sent, and no broker answers; waiting")
			}
		case !errors.Is(err, sink.ErrPassing), !time.Now().Before(deadline):
			return err
		}
		sleep(ctx, tailAgain)
	}
}

func (t *tailJournal) take(ctx context.Context, rec sink.TailRecord) error {
	id, source := rec.Headers[0], rec.Headers[1]
	// A dead letter's copy is no event.
	if id == nil || rec.Headers[2] != nil || !outbox.SameSource(string(source), t.sources...) {
		return nil
	}
	t.records++
	t.batch = append(t.batch, store.Published{ID: append([]byte(nil), id...), Topic: t.topic, Partition: rec.Partition, Offset: rec.Offset})
	if len(t.batch) < tailBatch {
		return nil
	}
	return t.flush(ctx)
}

func (t *tailJournal) flush(ctx context.Context) error {
	if len(t.batch) == 0 || t.err != nil {
		return t.err
	}
	st := t.session.r.store
	ids := make([][]byte, len(t.batch))
	for i := range t.batch {
		ids[i] = t.batch[i].ID
	}
	err := t.flushParked(ctx, ids)
	var recorded []bool
	if err == nil {
		recorded, err = st.Lookup(ctx, ids)
	}
	if err == nil {
		missing := t.batch[:0]
		for i, p := range t.batch {
			if !recorded[i] {
				missing = append(missing, p)
			}
		}
		t.found += len(missing)
		t.session.r.meter.Stream.SkippedTopic.Add(float64(len(missing)))
		if len(missing) > 0 {
			err = st.Settle(ctx, missing, nil)
		}
	}
	if err != nil {
		t.err = fmt.Errorf("journal what the topics hold: %w", err)
	}
	t.batch = t.batch[:0]
	return t.err
}

// flushParked journals those of the batch that are parked: they were retried, and that was not recorded.
func (t *tailJournal) flushParked(ctx context.Context, ids [][]byte) error {
	r, term := t.session.r, t.session.term
	if term.settler.Parked() <= 0 {
		return nil
	}
	lanes, err := r.store.ParkedAmong(ctx, ids)
	if err != nil || len(lanes) == 0 {
		return err
	}
	var retried []store.Published
	for _, p := range t.batch {
		if lane, parked := lanes[string(p.ID)]; parked {
			retried = append(retried, p)
			term.settler.Revisit(lane) // it may be empty now
		}
	}
	if err := r.store.SettleRetried(ctx, retried); err != nil {
		return err
	}
	term.settler.AddParked(-int64(len(lanes)))
	t.found += len(lanes)
	r.meter.Stream.SkippedTopic.Add(float64(len(lanes)))
	return nil
}

// ownSources are the names under which records of ours were sent: the present one, and those of the servers that the
// source lived on before it was adopted by this one.
func ownSources(present string, state *store.State) []string {
	sources := []string{present}
	for _, system := range state.FormerSystems {
		sources = append(sources, outbox.Source(system, state.Timeline, state.Source))
	}
	return sources
}

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
