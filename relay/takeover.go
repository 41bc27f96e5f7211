package relay

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/decoder"
	"github.com/cdc-relay/cdc-relay/internal/message"
	"github.com/cdc-relay/cdc-relay/internal/run/halt"
	"github.com/cdc-relay/cdc-relay/internal/run/recovery"
	"github.com/cdc-relay/cdc-relay/internal/run/restart"
	"github.com/cdc-relay/cdc-relay/internal/run/settings"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/sink"
)

// This file holds a session's work before it reads its stream, and reading ahead where it never came to that. It is
// the session's goroutine that runs it.

// begin is everything before the first event of the stream.
func (s *session) begin(ctx, working context.Context, table store.Outbox) error {
	ctx, cancel := within(working, ctx)
	defer cancel()
	if s.r.last.Unheard >= soundAfter {
		return s.sound(ctx)
	}
	if err := s.takeOver(ctx, working, table); err != nil {
		return err
	}
	if err := s.resume(ctx); err != nil {
		return err
	}
	if err := s.setClock(ctx); err != nil {
		return err
	}
	if err := s.openSpool(ctx, working, table); err != nil { // before anything waits for a broker
		return err
	}
	if err := s.term.settler.LoadBreaker(ctx); err != nil {
		return err
	}
	if err := s.term.requests.Obey(ctx); err != nil {
		return err
	}
	tails, err := s.tails(ctx) // before what is parked may take their places
	if err != nil {
		return err
	}
	if err := s.term.settler.LoadParked(ctx); err != nil {
		return err
	}
	// Before anything is sent, rows of a catch-up that was cut off included.
	if err := s.readBack(ctx, tails); err != nil {
		return err
	}
	if s.state.Phase == store.CatchUp {
		if err := s.emptySpool(ctx); err != nil {
			return err
		}
		if err := s.catchUp(ctx); err != nil {
			return err
		}
	}
	return s.expectRedelivery(ctx)
}

// tails are the topics that records may be in.
func (s *session) tails(ctx context.Context) ([]store.TopicTail, error) {
	tails, err := s.r.store.Tails(ctx)
	if err != nil {
		return nil, err
	}
	// An earlier release may have noted names that no topic can have: nothing was sent there.
	tails = slices.DeleteFunc(tails, func(t store.TopicTail) bool { return config.IllegalTopic(t.Topic) != "" })
	topics := make([]string, len(tails))
	for i, t := range tails {
		topics[i] = t.Topic
	}
	s.term.names.Announced(topics...)
	return tails, nil
}

// readBack reads the topics back after a process that died, and after a promotion: the new server may lack the last
// journal rows of the old one. After a session of this process on the same server there is no need: it knows what it
// sent.
func (s *session) readBack(ctx context.Context, tails []store.TopicTail) error {
	if !s.term.informed {
		s.expectPositions(tails)
	}
	promoted := s.term.timeline != 0 && s.term.timeline != s.grant.System.Timeline
	if s.unclean() && (!s.term.informed || promoted) && len(tails) > 0 {
		if err := s.readTails(ctx, tails); err != nil {
			return err
		}
	}
	s.term.informed, s.term.timeline = true, s.grant.System.Timeline
	return nil
}

// unclean reports whether events can come again that the tables do not know. What a promoted server says of a clean
// stop may be older than a relay that has published since: it lacks what that one noted last, its take-over, too.
func (s *session) unclean() bool { return s.state.Dirty || s.grant.System.Timeline != s.state.Timeline }

// readTails reads the topics back, and counts what that found. See package recovery.
func (s *session) readTails(ctx context.Context, tails []store.TopicTail) error {
	tailer, can := s.r.driver.(sink.Tailer)
	if !can {
		return nil
	}
	// By other templates an event has another lane now than its record in the topic, which then proves nothing.
	if s.state.Lanes == settings.Lanes(s.r.c) {
		from := s.grant.Confirmed
		if s.spool.Load() != nil { // what is spooled comes from before
			from = 0
		}
		s.term.sent = &recovery.Sent{From: from, UpTo: s.grant.System.WALFlush}
	} else {
		s.r.log.Warn().Msg("message.topic or message.key was changed since the unclean stop, or that is not known: an " +
			"event that is gone from its topic is sent again, perhaps behind newer ones of its key")
	}
	scan := recovery.Scan{
		Tailer: tailer, Tables: s.r.store, Queue: s.term.settler, Logger: s.r.log,
		Headers: s.only.router.TailHeaders(), Origins: s.origins(),
		Stamped: s.only.router.StampsCreatedAt(), Sent: s.term.sent,
	}
	err := scan.Run(ctx, tails)
	s.r.meter.Stream.SkippedTopic.Add(float64(scan.Found))
	most := s.r.c.Limits.MaxUnrecorded
	s.r.meter.Stream.PossibleDuplicates.Add(uint64(scan.Unread*most) + uint64(min(scan.Gone, int64(most))))
	return err
}

// origins are those of the records that this slot's relays have sent.
func (s *session) origins() recovery.Origins {
	o := recovery.NewOrigins(s.grant.System.ID, s.grant.System.Timeline)
	o.Add(0, s.state.Source, s.state.FormerSystems)
	if s.r.outboxes != nil {
		for _, x := range s.r.outboxes.Known() {
			o.Add(x.Source, x.Source, nil)
		}
	}
	return o
}

// announceSources says to the driver which of the records that it finds are of this slot's relays.
func (s *session) announceSources() {
	driver, finds := s.r.driver.(sink.Recognizer)
	if !finds {
		return
	}
	origins, has := s.origins(), func(int32) bool { return false }
	if s.r.outboxes != nil {
		has = s.r.outboxes.Has
	}
	driver.Recognize(func(source string) bool { return origins.Ours(source, has) })
}

// compatible refuses a server that is not the one that the state was written for.
func (s *session) compatible() error {
	if s.grant.System.ID == s.state.SystemID {
		return nil
	}
	return halt.WrongServer(s.grant.System.ID, s.state.SystemID)
}

// takeOver makes this process the one that writes, now that the stream is granted to it. It commits dirty = true.
func (s *session) takeOver(ctx, working context.Context, table store.Outbox) error {
	r, term := s.r, s.term
	if s.state.Phase == store.Stream && s.unclean() && term.epoch == 0 { // else it was this process that left it so
		r.meter.Stream.UncleanStarts.Inc()
	}
	var err error
	asked := time.Now()
	var listed bool
	if s.epoch, listed, err = r.store.TakeOver(ctx, uint32(s.grant.PID), s.grant.System.Timeline); err != nil {
		return s.explainLost(ctx, fmt.Errorf("take over: %w", err))
	}
	if s.state.CatchUpReady && !listed {
		r.log.Warn().Msg("the slot was recreated after the older rows were listed; listing them again")
	}
	s.state.CatchUpReady = listed
	if s.grant.System.Timeline != s.state.Timeline { // the take-over has noted it, so this is said once
		r.log.Warn().Int32("timeline", s.grant.System.Timeline).Int32("was", s.state.Timeline).
			Msg("the server was promoted or restored since the last session; what the stream sends again is looked up")
	}
	term.epoch, term.tookOverOn = s.epoch, s.grant.System.Timeline
	s.epochSeen.Store(s.epoch)
	term.lease.Prove(asked)
	cols := message.Columns(r.c)
	cols.Seq = r.meter.Stream.Interleaved.Begin(r.c.Outbox.OrderBy)
	created, err := createdIn(table)
	if err != nil {
		return err
	}
	s.decoding = decoder.Config{Columns: cols, Tables: table.OIDs, CreatedIn: created}
	if err = s.openSources(working, table, &s.decoding); err != nil {
		return err
	}
	s.announceSources()
	s.decoder = decoder.New(s.decoding)
	term.settler.UseEncoder(s.Encoder())
	s.known = term.inflight.Snapshot()
	return nil
}

// createdIn is the zone in which the stream's created_at is to be read; nil: it has one, or is in UTC.
func createdIn(table store.Outbox) (*time.Location, error) {
	if table.CreatedZone == "" {
		return nil, nil
	}
	zone, err := time.LoadLocation(table.CreatedZone) // the store has looked that there is one
	if err != nil {
		return nil, fmt.Errorf("read the time zone of created_at: %w", err)
	}
	return zone, nil
}

// explainLost says why the slot is not ours on the SQL side, when that is another server.
func (s *session) explainLost(ctx context.Context, err error) error {
	if !errors.Is(err, store.ErrLeaseLost) {
		return err
	}
	slot, failed := s.r.store.Slot(ctx)
	if failed != nil || slot.Exists {
		s.hearOut(ctx)
		return err
	}
	return &halt.Error{Code: halt.TwoServers, Cause: err,
		Reason: fmt.Sprintf("the stream from the slot %q was granted, and the server that postgres.url reaches knows "+
			"nothing of it", s.r.c.Postgres.Slot),
		Risk: halt.RiskWAL,
		Remedy: "point postgres.url and postgres.replication_url at the same server and database; where a pooler stands " +
			"in between, at the server behind it"}
}

// expectRedelivery decides whether ids are looked up before they are sent, and until where. After a clean stop at the
// slot's own position, on the same server, nothing can come again. Otherwise everything may, up to a token that is
// written now, when no other process writes to the slot any more.
func (s *session) expectRedelivery(ctx context.Context) error {
	if s.token != "" { // the spool was opened
		return nil
	}
	clean := s.state.Phase == store.Stream && !s.unclean() && s.state.Confirmed == s.grant.Confirmed
	if clean && s.known.Len() == 0 {
		s.redelivered()
		return nil
	}
	s.lookup = true
	s.lookingUp.Store(true)
	return s.emitToken(ctx)
}

// emitToken writes the token behind everything that may come again.
func (s *session) emitToken(ctx context.Context) error {
	s.token = fmt.Sprintf("H/%d/%016x", s.epoch, rand.Uint64())
	_, err := s.r.store.EmitToken(ctx, tokenPrefix, s.token)
	switch {
	case store.IsDenied(err):
		return &halt.Error{Code: halt.Setup, Reason: err.Error(), Risk: halt.RiskWAL, Cause: err,
			Remedy: "grant the role of postgres.url EXECUTE on pg_logical_emit_message, which was taken from PUBLIC: " +
				"cdc-relay check prints the statement"}
	case err != nil:
		return fmt.Errorf("write the redelivery token: %w", err)
	}
	return nil
}

// redelivered records that nothing can come again any more, and all that did is with the sink: from now on, once those
// of it that the sink gave back are parked, parked events may be retried. See mayRetry.
func (s *session) redelivered() {
	s.passed.Store(s.term.engine.Given() + 1)
	s.term.settler.Nudge()
}

// A session reads nothing of its stream before parked lanes, topics and catch-up are done. When the server cannot
// decode what the slot holds, it ends the stream in the meantime, with the reason behind all that no one has read. The
// slot is free then, and what this relay notices first is the standby's takeover. The standby fares alike, and the two
// take the slot from each other in turn, neither longer than the server needs to come to that place. So after some such
// sessions in a row the next one reads first.
const (
	soundAfter = 2        // sessions in a row that ended before their stream was read
	soundMost  = 64 << 20 // bytes of messages: more than sockets hold, so who ended unread did so before
)

// sound reads the stream for the reason that it ends with, to where the WAL ended when the slot was granted, or
// soundMost. What it reads is thrown away: nothing of it is confirmed, and the next session gets it again.
func (s *session) sound(ctx context.Context) error {
	s.heard = true
	s.r.log.Warn().Int("sessions", s.r.last.Unheard).
		Msg("sessions ended before their stream was read, as when another relay takes the slot; " +
			"reading ahead for the reason")
	for read := 0; read < soundMost && s.stream.Received() < s.grant.System.WALFlush; {
		select {
		case b, more := <-s.stream.Batches():
			if !more {
				<-ctx.Done() // the stream's end ends the work
				return context.Cause(ctx)
			}
			for _, m := range b.Messages {
				read += len(m.Data)
			}
			b.Recycle(false)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return restart.ErrSounded
}

// lastWords bounds the wait for the reason of a stream's end after its effect was seen.
const lastWords = time.Second

// hearOut reads the rest of a stream that the server has ended, for the reason that stands at its end. It has not
// begun to count, so that nothing of it is confirmed.
func (s *session) hearOut(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lastWords)
	defer cancel()
	for {
		select {
		case b, more := <-s.stream.Batches():
			if !more {
				return
			}
			b.Recycle(false)
		case <-ctx.Done():
			return
		}
	}
}
