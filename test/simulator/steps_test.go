package simulator

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store"
)

// step is one kind of step of a sequence. It says, in words, what it does, and what came of it.
type stepOf struct {
	name   string
	fenced bool // an epoch that is over is refused
	weight int
	do     func(p *drill, c *caller, d *dice) (string, error)
}

// step makes one, drawn.
func (p *drill) step(d *dice) {
	c := p.callers[one(d, 0, 0, 1, 2, 2)]
	total := 0
	for _, s := range stepsOf {
		total += s.weight
	}
	at := d.below(total)
	i := slices.IndexFunc(stepsOf, func(s stepOf) bool {
		at -= s.weight
		return at < 0
	})
	s := stepsOf[i]
	said, err := s.do(p, c, d)
	p.calls[s.name]++
	if errors.Is(err, store.ErrFenced) {
		p.calls[s.name+" fenced"]++
	}
	if err != nil {
		said += ": " + err.Error()
	}
	p.tell("p%d %s %s", c.number, s.name, said)
}

var stepsOf = slices.Concat(worldSteps, outcomeSteps, queueSteps, leaseSteps, tableSteps, peopleSteps, spoolSteps)

var worldSteps = []stepOf{
	{"insert", false, 8, func(p *drill, _ *caller, d *dice) (string, error) {
		p.w.mu.Lock()
		defer p.w.mu.Unlock()
		tx := p.w.server.write(d)
		p.w.server.commit(tx)
		p.w.server.show(tx)
		return fmt.Sprint(ids(tx.rows)), nil
	}},
	{"begin", false, 2, func(p *drill, _ *caller, d *dice) (string, error) {
		p.w.mu.Lock()
		defer p.w.mu.Unlock()
		tx := p.w.server.write(d)
		p.running = append(p.running, tx)
		return fmt.Sprint(ids(tx.rows)), nil
	}},
	{"commit", false, 2, func(p *drill, _ *caller, d *dice) (string, error) {
		return p.oneRunning(d, func(tx *transaction) {
			if tx.commit == 0 {
				p.w.server.commit(tx) // and is not to be seen yet
			}
		})
	}},
	{"show", false, 4, func(p *drill, _ *caller, d *dice) (string, error) {
		return p.oneRunning(d, func(tx *transaction) {
			if tx.commit != 0 {
				p.w.server.show(tx)
			} else {
				p.w.server.end(tx)
			}
		})
	}},
	{"remove", false, 1, func(p *drill, _ *caller, d *dice) (string, error) {
		p.w.mu.Lock()
		defer p.w.mu.Unlock()
		rows := slices.DeleteFunc(p.rows(d), func(r *row) bool { return !r.visible || r.deleted })
		for _, r := range rows[:min(1, len(rows))] {
			r.deleted = true
			p.w.real.deletes(r)
		}
		return fmt.Sprint(ids(rows[:min(1, len(rows))])), nil
	}},
}

// oneRunning is done to one of the transactions that run.
func (p *drill) oneRunning(d *dice, do func(*transaction)) (string, error) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	if len(p.running) == 0 {
		return "nothing", nil
	}
	i := d.below(len(p.running))
	tx := p.running[i]
	do(tx)
	if tx.over {
		p.running = slices.Delete(p.running, i, i+1)
	}
	return fmt.Sprint(ids(tx.rows)), nil
}

// published reports that the rows are in their topics, sometimes where they were before.
func (p *drill) published(rows []*row, d *dice) (list []store.Published) {
	for _, r := range rows {
		list = append(list, store.Published{ID: []byte(r.id), Topic: r.topic, Partition: int32(d.below(2)),
			Offset: int64(d.below(3))})
	}
	return list
}

func (p *drill) dead(r *row, d *dice) store.Dead {
	return store.Dead{Event: p.eventOf(r, d), Topic: r.topic, Key: r.keyBytes(), Partition: -1, Attempts: 1 + d.below(3),
		Class: one(d, outbox.Permanent, outbox.Transient), Code: one(d, "A", "B"), Text: "why",
		Holds: r.key != "" && d.chance(0.5), Stops: d.chance(0.7)}
}

var outcomeSteps = []stepOf{
	{"settle", false, 4, func(p *drill, c *caller, d *dice) (string, error) {
		rows := p.rows(d)
		return fmt.Sprint(ids(rows)), c.Settle(p.ctx, p.published(rows, d), nil)
	}},
	{"settle dead", true, 6, func(p *drill, c *caller, d *dice) (string, error) {
		rows := p.rows(d)
		if len(rows) == 0 {
			return "nothing", nil
		}
		var dead []store.Dead
		for _, r := range rows[:min(len(rows), 1+d.below(3))] {
			dead = append(dead, p.dead(r, d))
		}
		return fmt.Sprint(ids(rows)), c.Settle(p.ctx, p.published(rows[len(dead):], d), dead)
	}},
	{"park", true, 8, func(p *drill, c *caller, d *dice) (string, error) {
		rows := p.rows(d)
		var events []store.Parked
		for _, r := range rows {
			events = append(events, store.Parked{Event: p.eventOf(r, d), Topic: r.topic, Key: r.keyBytes(),
				Class: one(d, outbox.Transient, outbox.Permanent), Attempts: d.below(3), RetryIn: retryIn(d), Text: "why",
				Late: d.chance(0.2)})
		}
		if len(rows) == 0 {
			return "nothing", nil
		}
		if d.chance(0.5) {
			slices.Reverse(events)
		}
		n, err := c.Park(p.ctx, events)
		return fmt.Sprint(ids(rows), n), err
	}},
	{"retry later", true, 3, func(p *drill, c *caller, d *dice) (string, error) {
		var failed []store.Attempt
		for _, row := range c.parked(d) {
			failed = append(failed, store.Attempt{ID: row.event.ID, Attempts: row.attempts + 1, RetryIn: retryIn(d),
				Class: one(d, outbox.Transient, outbox.Permanent), Text: "again"})
		}
		if len(failed) == 0 {
			return "nothing", nil
		}
		return fmt.Sprint(len(failed)), c.RetryLater(p.ctx, failed)
	}},
	{"settle retried", true, 3, func(p *drill, c *caller, d *dice) (string, error) {
		var rows []*row
		for _, row := range c.parked(d) {
			rows = append(rows, p.w.server.table.byID[string(row.event.ID)])
		}
		if len(rows) == 0 {
			rows = p.rows(d)
		}
		if len(rows) == 0 {
			return "nothing", nil
		}
		return fmt.Sprint(ids(rows)), c.SettleRetried(p.ctx, p.published(rows, d))
	}},
	{"give up", true, 4, func(p *drill, c *caller, d *dice) (string, error) {
		rows := c.parked(d)
		if len(rows) == 0 {
			return "nothing", nil
		}
		r := p.w.server.table.byID[string(rows[0].event.ID)]
		dead := p.dead(r, d)
		dead.Event = &rows[0].event
		n, err := c.GiveUp(p.ctx, dead)
		return fmt.Sprint(r.id, n), err
	}},
	{"look up", false, 2, func(p *drill, c *caller, d *dice) (string, error) {
		var ids [][]byte
		var events []store.Sighting
		for _, r := range p.rows(d) {
			ids = append(ids, []byte(r.id))
			events = append(events, store.Sighting{ID: []byte(r.id)})
		}
		for _, row := range c.parked(d) {
			at := row.event.Position
			if d.chance(0.3) {
				at.Order++
			}
			events = append(events, store.Sighting{ID: row.event.ID, Position: at})
		}
		found, err := c.Lookup(p.ctx, ids)
		if _, among := c.ParkedAmong(p.ctx, events); err == nil {
			err = among
		}
		return fmt.Sprint(found), err
	}},
}

var queueSteps = []stepOf{
	{"due lanes", false, 3, func(p *drill, c *caller, d *dice) (string, error) {
		lanes, next, err := c.DueLanes(p.ctx, one(d, 1, 100), one(d, nil, []string{topicName(0)}))
		return fmt.Sprint(len(lanes), next), err
	}},
	{"lanes", false, 6, func(p *drill, c *caller, d *dice) (string, error) {
		lanes, n, err := c.ParkedLanes(p.ctx)
		if err == nil {
			_, err = c.CountParked(p.ctx)
		}
		if err == nil {
			_, err = c.CountDead(p.ctx)
		}
		if err == nil && len(lanes) > 0 {
			var asks []store.Ask
			for i, l := range lanes {
				same := func(o store.Lane) bool { return line(o.Topic, o.Key) == line(l.Topic, l.Key) }
				if !slices.ContainsFunc(lanes[:i], same) {
					asks = append(asks, store.Ask{Lane: l})
				}
			}
			if row := c.parked(d); len(row) > 0 {
				for i := range asks {
					if asks[i].Lane.Topic == row[0].topic && string(asks[i].Lane.Key) == string(row[0].key) && d.chance(0.5) {
						asks[i].After = &row[0].event.Position
					}
				}
			}
			_, err = c.Portions(p.ctx, asks, one(d, 1, 2, 100), 1<<20)
		}
		if err == nil {
			_, err = c.Portions(p.ctx, []store.Ask{{Lane: store.Lane{Topic: topicName(d.below(2))}}}, 100, 1<<20)
		}
		return fmt.Sprint(len(lanes), n), err
	}},
	{"wake heads", true, 2, func(p *drill, c *caller, _ *dice) (string, error) { return "", c.WakeHeads(p.ctx) }},
	{"make due", true, 2, func(p *drill, c *caller, d *dice) (string, error) {
		waiting, err := c.WaitingTopics(p.ctx)
		if err != nil {
			return "", err
		}
		topic := topicName(d.below(2))
		more, err := c.MakeDue(p.ctx, topic)
		return fmt.Sprint(len(waiting), topic, more), err
	}},
}

var leaseSteps = []stepOf{
	{"take over", false, 3, func(p *drill, c *caller, d *dice) (string, error) {
		known := d.chance(0.8) // else it asks as the backend of another
		if known {
			p.grant(c)
		}
		p.takeOver(c, known)
		return fmt.Sprint(c.epoch), nil
	}},
	{"slot", false, 3, func(p *drill, c *caller, d *dice) (string, error) {
		p.w.mu.Lock()
		s := p.w.server.slots[c.slot]
		s.confirmed = max(s.confirmed, p.w.server.wal.end-outbox.LSN(d.below(500)))
		s.lost = d.chance(0.2)
		p.w.mu.Unlock()
		st, err := c.Slot(p.ctx)
		if err == nil {
			_, err = c.State(p.ctx)
		}
		if err == nil {
			_, err = c.EmitToken(p.ctx, "a", "b")
		}
		if err == nil {
			_, err = c.Clock(p.ctx)
		}
		return fmt.Sprint(st.Confirmed, st.WALStatus), err
	}},
	{"save progress", true, 3, func(p *drill, c *caller, d *dice) (string, error) {
		at := p.w.server.wal.end - outbox.LSN(d.below(1000))
		return at.String(), c.SaveProgress(p.ctx, at)
	}},
	{"clean stop", true, 1, func(p *drill, c *caller, _ *dice) (string, error) {
		return "", c.CleanStop(p.ctx, p.w.server.wal.end)
	}},
	{"register", false, 1, func(p *drill, c *caller, _ *dice) (string, error) {
		_, err := c.Register(p.ctx, systemID, 1, p.w.server.table.oid, store.Stream)
		return "", err
	}},
	{"topics", true, 2, func(p *drill, c *caller, d *dice) (string, error) {
		topic := topicName(d.below(2))
		if err := c.AddTopics(p.ctx, []string{topic}); err != nil {
			return topic, err
		}
		err := c.SaveOffsets(p.ctx, []store.Offset{{Topic: topic, Partition: int32(d.below(2)), Next: int64(d.below(9))}})
		return topic, err
	}},
	{"tails", false, 1, func(p *drill, c *caller, _ *dice) (string, error) {
		tails, err := c.Tails(p.ctx)
		return fmt.Sprint(len(tails)), err
	}},
	{"open breaker", true, 1, func(p *drill, c *caller, _ *dice) (string, error) {
		return "", c.OpenBreaker(p.ctx, "why")
	}},
	{"close breaker", true, 1, func(p *drill, c *caller, _ *dice) (string, error) { return "", c.CloseBreaker(p.ctx) }},
	{"breaker", false, 2, func(p *drill, c *caller, d *dice) (string, error) {
		st, err := c.Breaker(p.ctx, one(d, time.Second, time.Hour), one(d, []string{}, []string{"CODE", "x"}))
		return fmt.Sprint(st), err
	}},
}

var tableSteps = []stepOf{
	{"begin catch-up", false, 2, func(p *drill, c *caller, d *dice) (string, error) {
		switch d.below(3) {
		case 0:
			return "", c.BeginCatchUp(p.ctx, d.chance(0.5))
		case 1:
			begun, err := c.BeginCatchUpOfLost(p.ctx)
			return fmt.Sprint("of lost", begun), err
		}
		begun, err := c.BeginCatchUpSince(p.ctx, c.epoch, d.chance(0.5))
		return fmt.Sprint("since", begun), err
	}},
	{"snapshot", true, 3, func(p *drill, c *caller, _ *dice) (string, error) {
		n, err := c.SnapshotCatchUp(p.ctx)
		return fmt.Sprint(n), err
	}},
	{"catch-up rows", false, 3, func(p *drill, c *caller, d *dice) (string, error) {
		rows, err := c.CatchUpRows(p.ctx, uint64(d.below(4)), one(d, 2, 100))
		return fmt.Sprint(len(rows)), err
	}},
	{"finish catch-up", true, 1, func(p *drill, c *caller, _ *dice) (string, error) { return "", c.FinishCatchUp(p.ctx) }},
	{"unrecorded", false, 3, func(p *drill, c *caller, d *dice) (string, error) {
		n, err := c.CountUnrecorded(p.ctx, int64(one(d, 0, 2)))
		if err == nil {
			_, err = c.UnrecordedIn(p.ctx, 0, 1, one(d, 2, 100))
		}
		var found [][]byte
		if err == nil {
			found, err = c.UnrecordedSince(p.ctx, clock().Add(-d.pause(0, 3*time.Second)), one(d, 2, 100))
		}
		if err == nil {
			_, err = c.LateRows(p.ctx, found, 100)
		}
		return fmt.Sprint(n), err
	}},
	{"save horizon", true, 1, func(p *drill, c *caller, _ *dice) (string, error) {
		return "", c.SaveHorizon(p.ctx, clock())
	}},
	{"save sweep", true, 1, func(p *drill, c *caller, _ *dice) (string, error) { return "", c.SaveSweep(p.ctx, clock()) }},
	{"audit state", false, 1, func(p *drill, c *caller, _ *dice) (string, error) {
		_, err := c.AuditState(p.ctx)
		return "", err
	}},
	{"mirror", false, 4, func(p *drill, c *caller, d *dice) (string, error) {
		n, more, err := c.MirrorStep(p.ctx, one(d, 1, 100))
		return fmt.Sprint(n, more), err
	}},
	{"delete", false, 3, func(p *drill, c *caller, d *dice) (string, error) {
		n, more, err := c.DeleteStep(p.ctx, time.Duration(p.w.profile.config.Outbox.Retention), one(d, 1, 100))
		return fmt.Sprint(n, more), err
	}},
	{"mirror lag", false, 2, func(p *drill, c *caller, _ *dice) (string, error) {
		n, age, err := c.MirrorLag(p.ctx)
		return fmt.Sprint(n, age), err
	}},
	{"prune", false, 1, func(p *drill, c *caller, _ *dice) (string, error) {
		_, _, err := c.Prune(p.ctx, time.Hour, 100)
		if err == nil {
			_, _, err = c.PruneDead(p.ctx, time.Hour, 100)
		}
		return "", err
	}},
}
