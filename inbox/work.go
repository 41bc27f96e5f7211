package inbox

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/cdc-relay/cdc-relay/inbox/internal/lanes"
	"github.com/cdc-relay/cdc-relay/inbox/internal/ledger"
)

// How the handling of an event ended: the label status.
const (
	statusDone      = "done"
	statusDuplicate = "duplicate"
	statusIgnored   = "ignored"
	statusDead      = "dead"
	statusLeft      = "" // its transaction took too long: not handled yet
)

// task is one event of a run.
type task struct {
	m       *Message
	id      ledger.ID
	piece   int
	handler *registered // nil: none for its type
	unread  error       // its message cannot be read
	status  string
	took    time.Duration
	called  bool // its handler was
	begun   bool // its turn came: else it is handed back
}

// tasks reads the events of a job.
func (s *session) tasks(r *run, job lanes.Job) ([]*task, error) {
	var all []*task
	for i, piece := range job.Pieces {
		for _, item := range piece.Items {
			t, err := s.newTask(r.ctx, i, func() (*Message, error) {
				return s.c.config.read(item.Record, s.topicID(item.Record.Topic))
			})
			if err != nil {
				return nil, err
			}
			t.m.Attempt += piece.Lane.Attempts
			all = append(all, t)
		}
	}
	return all, nil
}

func (s *session) newTask(ctx context.Context, piece int, read func() (*Message, error)) (*task, error) {
	m, unread := read()
	t := &task{m: m, piece: piece, handler: s.c.handlers[m.Type], unread: unread}
	var err error
	t.id, err = s.identify(ctx, m)
	return t, own(err)
}

// identify turns a message's id into the ledger's. A source that is new costs a look into the database.
func (s *session) identify(ctx context.Context, m *Message) (ledger.ID, error) {
	if ledger.IsUUID(m.ID) {
		return s.ledger.Identify(ctx, m.ID, "")
	}
	stored, err := s.ledger.Fit(ctx, m.ID)
	if err != nil {
		return ledger.ID{}, err
	}
	s.mu.Lock()
	number, known := s.sources[m.Source]
	s.mu.Unlock()
	if known {
		return ledger.ID{Source: number, Event: stored}, nil
	}
	id, err := s.ledger.Identify(ctx, stored, m.Source)
	if err != nil {
		return id, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sources[m.Source] = id.Source
	return id, nil
}

// outcome is how a transaction ended.
type outcome struct {
	err    error
	parked map[int]bool // pieces with an event that another process parked: nothing was done
}

// handle has the effects of a job's events, all in one transaction. If that fails, its lanes go one by one.
func (s *session) handle(r *run, job lanes.Job) []lanes.Verdict {
	tasks, err := s.tasks(r, job)
	if err != nil {
		return s.setAside(job, s.trouble(job, outcome{err: err}))
	}
	guard, verdicts := s.guard(r, job, tasks)
	if verdicts != nil {
		return verdicts
	}
	if apart := s.apart(job, tasks); apart != nil {
		guard.end(false)
		return apart
	}
	o := s.transact(r, tasks, guard)
	guard.end(o.err == nil && o.parked == nil)
	s.unclaim(r, tasks, o.err)
	switch {
	case o.parked != nil:
		verdicts = make([]lanes.Verdict, len(job.Pieces))
		for i := range verdicts {
			verdicts[i] = lanes.Verdict{Parked: o.parked[i], Due: o.parked[i]}
		}
		return verdicts
	case o.err != nil && len(tasks) == 1 && s.isAttempt(job.Pieces[0].Lane, o.err):
		return []lanes.Verdict{s.failed(r, job.Pieces[0].Lane, tasks[0], o.err)}
	case o.err != nil:
		return s.setAside(job, s.trouble(job, o))
	}
	verdicts = make([]lanes.Verdict, len(job.Pieces))
	for _, piece := range job.Pieces {
		piece.Lane.Quarrels = 0
	}
	left := make([]bool, len(job.Pieces))
	decided := tasks[:0:0]
	for _, t := range tasks {
		if left[t.piece] = left[t.piece] || t.status == statusLeft; left[t.piece] {
			continue
		}
		decided = append(decided, t)
		verdicts[t.piece].Decided++
		verdicts[t.piece].Success = verdicts[t.piece].Success || t.status == statusDone
	}
	s.spend(job, decided)
	s.report(decided)
	return verdicts
}

// setAside lets the lanes of a failed transaction go alone.
func (s *session) setAside(job lanes.Job, v lanes.Verdict) []lanes.Verdict {
	verdicts := make([]lanes.Verdict, len(job.Pieces))
	for i, piece := range job.Pieces {
		verdicts[i] = v
		verdicts[i].Alone = len(piece.Items)
	}
	return verdicts
}

// isAttempt reports whether a failure is the event's own, as far as one can tell.
func (s *session) isAttempt(lane *lanes.Lane, err error) bool {
	switch classify(err) {
	case causeTransient, causePermanent:
		return !errors.Is(err, ledger.ErrSetBack)
	case causeConflict:
		return lane.Quarrels >= 20
	case causeLost: // an event can also be the end of its session: then the database answers, and it is always this one
		often := lane.Quarrels >= 20 || lane.Quarrels >= 3 && errors.Is(err, errConnection)
		return often && s.hard.Err() == nil && s.ledger.Check(s.hard) == nil
	}
	return false
}

// trouble is the verdict on a transaction that failed by no one's fault, or by one's of several.
func (s *session) trouble(job lanes.Job, o outcome) lanes.Verdict {
	if errors.Is(o.err, ledger.ErrSetBack) {
		s.fail(o.err)
		return lanes.Verdict{Wait: time.Hour} // the session ends
	}
	kind := classify(o.err)
	if kind == causeTransient || kind == causePermanent {
		return lanes.Verdict{} // one of several is guilty: they go on at once, alone
	}
	most := 0
	for _, piece := range job.Pieces {
		piece.Lane.Quarrels++
		most = max(most, piece.Lane.Quarrels)
	}
	if kind == causeConflict {
		s.c.metric(func(m Metrics) { m.LockWait() })
		return lanes.Verdict{Wait: min(10*time.Millisecond<<min(most, 10), time.Second)}
	}
	v := lanes.Verdict{Wait: min(50*time.Millisecond<<min(most, 10), 10*time.Second), Failed: lanes.Outage}
	if errors.Is(o.err, errConnection) && s.hard.Err() == nil && s.ledger.Check(s.hard) == nil {
		v.Failed = lanes.None // it was this connection's end alone
	}
	s.c.config.Log.Warn("inbox: an outage, no attempt is counted", "consumer", s.c.config.Name, "error", o.err)
	return v
}

// transact claims the events and has their effects.
func (s *session) transact(r *run, tasks []*task, guard *guard) (o outcome) {
	tx, err := s.ledger.Begin(r.ctx)
	if err != nil {
		return outcome{err: own(r.explain(err))}
	}
	r.hold(tx)
	r.divisible = true
	defer func() { tx.End(r.ctx, r.watch.unclean) }()
	fresh, o := s.claim(r, tx, tasks)
	if o.err != nil || o.parked != nil {
		return o
	}
	if err := s.effects(r, fresh); err != nil {
		return outcome{err: r.explain(err)}
	}
	fresh, err = s.handBack(r, tx, fresh)
	if err != nil {
		return outcome{err: own(r.explain(err))}
	}
	if err := guard.acquit(r.ctx, tx); err != nil {
		return outcome{err: own(r.explain(err))}
	}
	if len(fresh) == 0 {
		return outcome{err: own(r.explain(tx.Commit(r.ctx)))}
	}
	return outcome{err: r.explain(tx.CommitEvent(r.ctx, fresh[len(fresh)-1].id, ledger.Done))}
}

// explain says why a context has ended, where that is the reason.
func (r *run) explain(err error) error {
	why := context.Cause(r.ctx)
	if err == nil || why == nil {
		return err
	}
	return errors.Join(errInterrupted, why, err)
}

// claim enters the events' rows; fresh are those whose effects are to be had now.
func (s *session) claim(r *run, tx *ledger.Tx, tasks []*task) (fresh []*task, o outcome) {
	asked := make([]*task, 0, len(tasks))
	ids := make([]ledger.ID, 0, len(tasks))
	repeated := map[ledger.ID]bool{}
	for _, t := range tasks {
		if len(tasks) > 1 && repeated[t.id] {
			t.status = statusDuplicate
			continue
		}
		repeated[t.id] = true
		t.status = statusDone
		asked, ids = append(asked, t), append(ids, t.id)
	}
	conflicts, err := s.ledger.Claim(r.ctx, tx, ids)
	if err != nil {
		return nil, outcome{err: own(r.explain(err))}
	}
	for _, c := range conflicts {
		t := asked[c.Place]
		if t.status = statusDuplicate; c.State == ledger.Parked {
			if o.parked == nil {
				o.parked = map[int]bool{}
			}
			o.parked[t.piece] = true
		}
	}
	if o.parked != nil || len(conflicts) == 0 {
		return asked, o
	}
	for _, t := range asked {
		if t.status != statusDuplicate {
			fresh = append(fresh, t)
		}
	}
	return fresh, o
}

// effects calls the handlers, each key's events in order.
func (s *session) effects(r *run, tasks []*task) error {
	if !s.c.batches {
		for _, t := range tasks {
			if s.late(r) {
				return nil
			}
			if err := s.call(r, t.handler, []*task{t}, len(tasks)); err != nil {
				return err
			}
		}
		return nil
	}
	var groups [][]*task // by piece
	for i, t := range tasks {
		if i == 0 || t.piece != tasks[i-1].piece {
			groups = append(groups, nil)
		}
		groups[len(groups)-1] = append(groups[len(groups)-1], t)
	}
	for len(groups) > 0 && !s.late(r) {
		batch := nextBatch(groups)
		if err := s.call(r, batch[0].handler, batch, len(tasks)); err != nil {
			return err
		}
		left := groups[:0]
		for _, g := range groups {
			if len(g) > 0 {
				left = append(left, g)
			}
		}
		groups = left
	}
	return nil
}

// nextBatch takes the first group's next event off, and with it what can go into the same call: the next ones of the
// same type, of every group.
func nextBatch(groups [][]*task) (batch []*task) {
	handler, kind := groups[0][0].handler, groups[0][0].m.Type
	if handler == nil || handler.many == nil || groups[0][0].unread != nil {
		batch, groups[0] = groups[0][:1], groups[0][1:]
		return batch
	}
	for i, g := range groups {
		n := 0
		for n < len(g) && g[n].m.Type == kind && g[n].unread == nil {
			n++
		}
		batch, groups[i] = append(batch, g[:n]...), g[n:]
	}
	return batch
}

// call runs one handler, of one or several of all the transaction's events.
func (s *session) call(r *run, h *registered, tasks []*task, all int) error {
	first := tasks[0]
	for _, t := range tasks {
		t.begun = true
	}
	switch {
	case first.unread != nil:
		return Permanent(first.unread)
	case h == nil && s.c.config.Unknown == Dead:
		return Permanent(errors.New("no handler for type " + first.m.Type))
	case h == nil:
		first.status = statusIgnored
		return nil
	}
	began := time.Now()
	r.begin(began)
	r.watch.worst, r.watch.raw = plain, false
	for _, t := range tasks {
		t.called = true
	}
	err := r.look(s.classified(s.invoke(r, h, tasks)))
	took := time.Since(began)
	r.done(len(tasks), took)
	for _, t := range tasks {
		t.took = took / time.Duration(len(tasks))
	}
	if r.watch.worst == plain {
		return err
	}
	h.solitary.Store(true)
	if err == nil && all > len(tasks) {
		err = judged{errSettings, causeTransient}
	}
	return err
}

// invoke turns a panic into an error: it costs the event an attempt, and not everybody the process.
func (s *session) invoke(r *run, h *registered, tasks []*task) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the handler panicked: %v\n%s", p, debug.Stack())
		}
	}()
	ctx := context.WithValue(r.handling, sessionKey{}, s)
	tx := handlerTx{Tx: r.watch.tx, r: r}
	if h.many != nil {
		if err := r.traceparent(ctx, ""); err != nil {
			return err
		}
		ms := make([]*Message, len(tasks))
		for i, t := range tasks {
			ms[i] = t.m
		}
		return h.many(ctx, tx, ms)
	}
	m := tasks[0].m
	ctx, span, parent := s.trace.begin(ctx, s.feed.system(), s.c.config.Name, m)
	if err := r.traceparent(ctx, parent); err != nil {
		return err
	}
	defer func() { endSpan(span, err) }()
	return h.one(ctx, tx, m)
}
