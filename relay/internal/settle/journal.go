package settle

import (
	"context"
	"time"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/store"
)

const (
	// journalGap is the least time between two journal transactions while events keep coming. Confirming a few
	// milliseconds later costs nobody anything; a commit per event would cost the database a flush each.
	journalGap = 25 * time.Millisecond
	// journalEarly is how many outcomes do not wait for the gap; a share of what may be unrecorded or in flight, if
	// that is less, or waiting would hold up the sink. A COPY costs the server as much by itself as a thousand rows.
	journalEarly = 4000
	journalShare = 4
	// journalBeside is how many times as many, or as long, outcomes wait while others are being journaled.
	journalBeside = 2
	// journalMost bounds one journal transaction.
	journalMost = 10_000
	// journalWriters is how many journal transactions run at once.
	journalWriters = 2
)

// journal gathers published events, and hands them to the journal writers. It belongs to the loop's goroutine.
type journal struct {
	toWrite chan *journalJob
	written chan *journalJob // committed

	pending  *journalJob
	issued   time.Time // when the last job went to a writer
	early    int       // see journalEarly
	spare    []*journalJob
	frontier frontier
}

// journalJob is what one journal transaction records.
type journalJob struct {
	rows       []store.Published
	deliveries []*Delivery
	records    []*sink.Record
	retried    bool        // some of them were parked
	ends       []offsetRun // see frontier
	committed  bool
}

func newJournal(limits config.Limits) journal {
	return journal{
		toWrite: make(chan *journalJob), written: make(chan *journalJob), pending: new(journalJob),
		early: max(1, min(journalEarly, limits.MaxUnrecorded/journalShare, limits.InFlightEvents/journalShare)),
	}
}

// add takes in an event that was published.
func (j *journal) add(d *Delivery) {
	rec, job := &d.Record, j.pending
	job.rows = append(job.rows, store.Published{
		ID: d.Event.ID, Topic: rec.Topic, Partition: rec.Partition, Offset: rec.Offset,
	})
	job.deliveries = append(job.deliveries, d)
	job.records = append(job.records, rec)
	j.frontier.note(job, rec)
}

// issue is called when a writer has taken what is pending.
func (j *journal) issue() {
	j.frontier.issue(j.pending)
	j.pending, j.issued = j.newJob(), time.Now()
}

// wait is how long the pending rows may still wait for company; an hour when there are none. While a journal
// transaction is under way they wait longer: one after it costs the server less than one beside it, unless it is
// slow.
func (j *journal) wait() time.Duration {
	early, gap := j.early, journalGap
	if len(j.frontier.issued) > 0 {
		early, gap = early*journalBeside, gap*journalBeside
	}
	switch n := len(j.pending.rows); {
	case n == 0:
		return time.Hour
	case n >= early:
		return 0
	}
	return gap - time.Since(j.issued)
}

// newJob is an empty job. There are as many as are with the writers, and one, so all are kept.
func (j *journal) newJob() *journalJob {
	n := len(j.spare)
	if n == 0 {
		return new(journalJob)
	}
	job := j.spare[n-1]
	j.spare = j.spare[:n-1]
	return job
}

// writeJournal commits journal jobs, each for as long as it takes: the window bounds what waits behind it.
func (l *loop) writeJournal(ctx context.Context) {
	for {
		var j *journalJob
		select {
		case j = <-l.journal.toWrite:
		case <-ctx.Done():
			return
		}
		begun := time.Now()
		if !l.insist(ctx, "journal", func() error { return l.commitJournal(ctx, j) }) {
			return
		}
		l.settler.meter.Journaled(len(j.rows), time.Since(begun))
		select {
		case l.journal.written <- j:
		case <-ctx.Done():
			return
		}
	}
}

func (l *loop) commitJournal(ctx context.Context, j *journalJob) error {
	if j.retried {
		return l.settler.tables.SettleRetried(ctx, j.rows)
	}
	return l.settler.tables.Settle(ctx, j.rows, nil)
}

func (l *loop) finishJournal(j *journalJob) {
	l.settler.breaker.published(len(j.rows))
	l.settler.engine.SettledThen(j.records, func() {
		if j.retried {
			for _, d := range j.deliveries {
				if d.parked {
					l.parking.journaled(d)
				}
			}
		}
		l.settler.inflight.finish(j.deliveries)
	})
	clear(j.rows)
	clear(j.deliveries)
	clear(j.records)
	j.rows, j.deliveries, j.records = j.rows[:0], j.deliveries[:0], j.records[:0]
	for _, passed := range l.journal.frontier.written(j) {
		passed.ends, passed.committed, passed.retried = passed.ends[:0], false, false
		l.journal.spare = append(l.journal.spare, passed)
	}
	l.lanes.advance()
	l.parking.advance()
	signal(l.progress)
}
