package inbox

import (
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/inbox/internal/lanes"
	"github.com/cdc-relay/cdc-relay/inbox/internal/ledger"
)

// Classes of parked events and dead letters.
const (
	classTransient = "transient"
	classPermanent = "permanent"
	classExhausted = "exhausted" // MaxAttempts
	classProcess   = "process"   // it has ended its process, again and again
	classBlocked   = "blocked"   // it waits behind another one of its key
	classReplay    = "replay"    // it was a dead letter, as inbox_replay says it
)

// entry is how an event is stored: the message as it came, which is read again when its turn comes.
func entry(t *task, lane lanes.Name, r *kgo.Record) ledger.Entry {
	e := ledger.Entry{
		ID: t.id, Place: ledger.Place{Topic: r.Topic, Partition: r.Partition}, Offset: r.Offset, Lane: []byte(lane),
		Key: r.Key, Type: clean(t.m.Type), Value: r.Value, SentAt: r.Timestamp,
	}
	for _, h := range r.Headers {
		e.HeaderNames = append(e.HeaderNames, clean(h.Key))
		e.HeaderValues = append(e.HeaderValues, h.Value)
	}
	return e
}

// record is the message of a stored event.
func record(e ledger.Entry) *kgo.Record {
	r := &kgo.Record{
		Topic: e.Place.Topic, Partition: e.Place.Partition, Offset: e.Offset, Key: e.Key, Value: e.Value, Timestamp: e.SentAt,
	}
	for i, name := range e.HeaderNames {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: name, Value: e.HeaderValues[i]})
	}
	return r
}

// park stores events behind those of their lane that are parked.
func (s *session) park(r *run, job lanes.Job) []lanes.Verdict {
	tasks, err := s.tasks(r, job)
	if err == nil {
		entries := make([]ledger.Entry, len(tasks))
		for i, t := range tasks {
			entries[i] = entry(t, job.Pieces[0].Lane.Name, job.Pieces[0].Items[i].Record)
			entries[i].Class, entries[i].Waits = classBlocked, ledger.ForOthers
		}
		err = r.explain(s.ledger.Park(r.ctx, entries, s.c.config.MaxParked))
	}
	if err != nil {
		return s.setAside(job, s.notStored(job, err))
	}
	job.Pieces[0].Lane.Quarrels = 0
	return []lanes.Verdict{{Decided: len(tasks), Parked: true}}
}

// failed decides about an event in memory whose handler failed.
func (s *session) failed(r *run, lane *lanes.Lane, t *task, err error) lanes.Verdict {
	if r.probe {
		return lanes.Verdict{Wait: time.Millisecond, Alone: 1, Failed: lanes.Transient}
	}
	now := time.Now()
	if lane.Since.IsZero() {
		lane.Since = now
	}
	attempts := lane.Attempts + 1
	e := entry(t, lane.Name, r.record)
	e.Attempts, e.Error, e.Class = attempts, text(err), classTransient
	retry := s.c.config.Retry
	if permanent := classify(err) == causePermanent; permanent || attempts >= retry.MaxAttempts {
		if e.Class = classExhausted; permanent {
			e.Class = classPermanent
		}
		return s.giveUp(r, lane, t, e)
	}
	s.retried(t, err)
	wait := s.after(attempts, err)
	if s.engine.Full() || attempts < retry.ParkAfter && now.Sub(lane.Since)+wait <= parkWait {
		lane.Attempts = attempts
		return lanes.Verdict{Wait: wait, Alone: 1, Failed: lanes.Transient}
	}
	e.Wait = wait
	if err := r.explain(s.ledger.Park(r.ctx, []ledger.Entry{e}, s.c.config.MaxParked)); err != nil {
		return s.unstored(lane, err)
	}
	return lanes.Verdict{Decided: 1, Parked: true, Failed: lanes.Transient}
}

func (s *session) after(attempts int, err error) time.Duration {
	var asked retryAfterError
	if errors.As(err, &asked) {
		return asked.wait
	}
	return s.c.config.Retry.after(attempts, rand.Float64())
}

func (s *session) retried(t *task, err error) {
	s.c.config.Log.Debug("inbox: an event failed", "consumer", s.c.config.Name, "id", t.m.ID, "type", t.m.Type,
		"attempt", t.m.Attempt, "error", err)
	s.c.metric(func(m Metrics) { m.Retried(kindOf(t)) })
}

func kindOf(t *task) string {
	if t.handler == nil {
		return unknownType
	}
	return t.m.Type
}

// giveUp makes an event a dead letter, or holds it for a person.
func (s *session) giveUp(r *run, lane *lanes.Lane, t *task, e ledger.Entry) lanes.Verdict {
	parked := e.Seq != 0
	if s.c.config.Retry.OnDead == Hold {
		e.Waits = ledger.ForPerson
		var err error
		if parked {
			err = s.ledger.Failed(r.ctx, e, e.Attempts-1)
		} else {
			err = s.ledger.Park(r.ctx, []ledger.Entry{e}, s.c.config.MaxParked)
		}
		if err != nil {
			return s.unstored(lane, r.explain(err))
		}
		s.c.config.Log.Error("inbox: holding an event and its followers for a person", "consumer", s.c.config.Name,
			"id", t.m.ID, "type", t.m.Type, "error", e.Error)
		return lanes.Verdict{Decided: inMemory(parked), Parked: true}
	}
	if !s.engine.MayDie() {
		return lanes.Verdict{Wait: time.Second, Alone: 1, Parked: parked, Due: parked, Failed: lanes.Transient}
	}
	if err := r.explain(s.ledger.Bury(r.ctx, e)); err != nil {
		return s.unstored(lane, err)
	}
	if e.Class == classProcess {
		_ = s.ledger.Acquit(r.ctx, nil, []ledger.ID{e.ID}) // else its replay is handled alone, and is well
	}
	s.c.config.Log.Error("inbox: dead letter", "consumer", s.c.config.Name, "id", t.m.ID, "type", t.m.Type,
		"class", e.Class, "attempts", e.Attempts, "error", e.Error)
	s.c.last.Store(time.Now().UnixNano())
	s.c.metric(func(m Metrics) { m.Processed(statusDead, kindOf(t)) })
	lane.Quarrels = 0
	return lanes.Verdict{Decided: inMemory(parked), Parked: parked, Due: parked}
}

func inMemory(parked bool) int {
	if parked {
		return 0
	}
	return 1
}

// unstored is the verdict when the ledger could not be written: the event is tried again, and no attempt is counted.
func (s *session) unstored(lane *lanes.Lane, err error) lanes.Verdict {
	v := s.notStored(lanes.Job{Pieces: []lanes.Piece{{Lane: lane}}}, err)
	v.Alone = 1
	return v
}

// fullWait is when an event is tried again that there was no room to park.
const fullWait = time.Second

// notStored leaves the job alone for a while, whatever the ledger's error is.
func (s *session) notStored(job lanes.Job, err error) lanes.Verdict {
	if errors.Is(err, ledger.ErrFull) {
		s.engine.SetFull(true)
		return lanes.Verdict{Wait: fullWait}
	}
	v := s.trouble(job, outcome{err: err})
	if v.Wait == 0 { // no class that it knows: a right is missing, a table was changed
		s.c.config.Log.Error("inbox: storing an event", "consumer", s.c.config.Name, "error", err)
		v.Wait, v.Failed = time.Second, lanes.Outage
	}
	return v
}

// retry takes a parked lane's lowest events, and has their effects.
func (s *session) retry(r *run, job lanes.Job) lanes.Verdict {
	lane := job.Pieces[0].Lane
	most := s.c.config.MaxBatch
	if r.probe || lane.Solo > 0 {
		most = 1
	}
	due, early, err := s.look(r, lane, most)
	switch {
	case err != nil:
		return again(s.unstored(lane, err))
	case early:
		return lanes.Verdict{Parked: true}
	case len(due) == 0:
		return lanes.Verdict{Freed: true}
	}
	if due[0].Attempts > 0 {
		due = due[:1]
	}
	if alone := slices.IndexFunc(due, s.solitary); alone >= 0 {
		due = due[:max(1, alone)]
	}
	if other := slices.IndexFunc(due, func(e ledger.Entry) bool { return s.limitOf(e) != s.limitOf(due[0]) }); other > 0 {
		due = due[:other]
	}
	class, may := s.engine.Enter(record(due[0]))
	if !may {
		return again(lanes.Verdict{Wait: limitWait})
	}
	defer s.engine.Leave(class)
	tasks, err := s.storedTasks(r, due)
	if err != nil {
		return again(s.unstored(lane, err))
	}
	guard, verdicts := s.guard(r, job, tasks)
	switch {
	case guard.killer != nil:
		return s.giveUp(r, lane, tasks[0], died(due[0]))
	case verdicts != nil && verdicts[0].Wait == 0: // there is a suspect among them
		lane.Solo = len(due)
		return lanes.Verdict{Parked: true, Due: true}
	case verdicts != nil:
		return again(verdicts[0])
	}
	same, err := s.settle(r, lane, due, tasks, guard)
	guard.end(err == nil && same)
	if err != nil {
		return s.failedParked(r, lane, due, tasks, err)
	}
	lane.Solo = max(0, lane.Solo-len(due))
	lane.Quarrels = 0
	if same {
		s.report(tasks)
	}
	return lanes.Verdict{Parked: true, Due: true, Success: same}
}

// solitary reports whether an event must be alone in its transaction.
func (s *session) solitary(e ledger.Entry) bool {
	h := s.c.handlers[e.Type]
	return h != nil && h.solitary.Load()
}

// limitWait is when parked events are looked at again whose type has as many workers as it may.
const limitWait = 50 * time.Millisecond

// limitOf is the bound of workers of an event's type, with the type: two events with the same may go together.
func (s *session) limitOf(e ledger.Entry) string {
	if s.c.limits[e.Type] == 0 {
		return ""
	}
	return e.Type
}

// again keeps a lane parked and due.
func again(v lanes.Verdict) lanes.Verdict {
	v.Parked, v.Due, v.Alone = true, true, 0
	return v
}

// look reads what is due, and lets go of it.
func (s *session) look(r *run, lane *lanes.Lane, most int) (due []ledger.Entry, early bool, err error) {
	tx, err := s.ledger.Begin(r.ctx)
	if err != nil {
		return nil, false, r.explain(err)
	}
	defer tx.End(r.ctx, false)
	due, early, err = s.ledger.Lowest(r.ctx, tx, ledger.Place(lane.Place()), []byte(lane.Name), most)
	if err != nil {
		err = r.explain(err)
	}
	return due, early, err
}

func (s *session) storedTasks(r *run, due []ledger.Entry) ([]*task, error) {
	tasks := make([]*task, len(due))
	for i, e := range due {
		t, err := s.newTask(r.ctx, 0, func() (*Message, error) {
			return s.c.config.read(record(e), s.topicID(e.Place.Topic))
		})
		if err != nil {
			return nil, err
		}
		t.id, t.status = e.ID, statusDone
		t.m.Attempt = e.Attempts + 1
		if e.Class == classReplay { // later events of its key may have had their effects
			t.m.Late, t.m.Replay = true, true
		}
		tasks[i] = t
	}
	return tasks, nil
}

// settle has the effects of parked events and says that they are done, in one transaction. It reports false, and has
// done nothing, if they are not the lane's lowest any more.
func (s *session) settle(
	r *run, lane *lanes.Lane, due []ledger.Entry, tasks []*task, guard *guard,
) (same bool, err error) {
	tx, err := s.ledger.Begin(r.ctx)
	if err != nil {
		return false, own(r.explain(err))
	}
	r.hold(tx)
	defer func() { tx.End(r.ctx, r.watch.unclean) }()
	now, _, err := s.ledger.Lowest(r.ctx, tx, ledger.Place(lane.Place()), []byte(lane.Name), len(due))
	if err != nil {
		return false, own(r.explain(err))
	}
	if len(now) != len(due) {
		return false, nil
	}
	for i := range now {
		if now[i].Seq != due[i].Seq || now[i].Attempts != due[i].Attempts {
			return false, nil
		}
	}
	// First: a handler that commits its transaction, somehow, must not leave the event parked behind its effect.
	if err := s.ledger.Settle(r.ctx, tx, due); err != nil {
		return false, own(r.explain(err))
	}
	if err := s.effects(r, tasks); err != nil {
		return false, r.explain(err)
	}
	if err := guard.acquit(r.ctx, tx); err != nil {
		return false, own(r.explain(err))
	}
	if err := tx.CommitEvent(r.ctx, due[len(due)-1].ID, ledger.Done); err != nil {
		return false, r.explain(err)
	}
	return true, nil
}

// failedParked decides about parked events whose transaction failed.
func (s *session) failedParked(
	r *run, lane *lanes.Lane, due []ledger.Entry, tasks []*task, err error,
) lanes.Verdict {
	if !s.isAttempt(lane, err) {
		return again(s.unstored(lane, err))
	}
	if len(due) > 1 {
		lane.Solo = len(due)
		return lanes.Verdict{Parked: true, Due: true}
	}
	if r.probe {
		return lanes.Verdict{Parked: true, Due: true, Wait: time.Millisecond, Failed: lanes.Transient}
	}
	e, before := due[0], due[0].Attempts
	e.Attempts, e.Error, e.Class = before+1, text(err), classTransient
	if permanent := classify(err) == causePermanent; permanent || e.Attempts >= s.c.config.Retry.MaxAttempts {
		if e.Class = classExhausted; permanent {
			e.Class = classPermanent
		}
		return s.giveUp(r, lane, tasks[0], e)
	}
	if due[0].Class == classReplay {
		e.Class = classReplay
	}
	s.retried(tasks[0], err)
	e.Wait = s.after(e.Attempts, err)
	if err := r.explain(s.ledger.Failed(r.ctx, e, before)); err != nil {
		return again(s.unstored(lane, err))
	}
	return lanes.Verdict{Parked: true, Failed: lanes.Transient}
}
