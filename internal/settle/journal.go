package settle

import (
	"context"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/settle/frontier"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/sink"
)

const (
	// journalGap is the least time between two journal transactions while events keep coming. Confirming a few
	// milliseconds later costs no one anything; a commit per event would cost the database a flush each.
	journalGap = 25 * time.Millisecond
	// steadyGap is what the gap grows to at a steady pace, unless something waits for the journal, see hurries. A kill
	// leaves that much more to be read back from the topics, so brokers that cannot be read back keep journalGap: there
	// it would be duplicates.
	steadyGap = 250 * time.Millisecond
	// With a latency target the gap may grow to so many times the target, and to longestGap.
	targetGaps, longestGap = 25, time.Second
	// A job with journalCompany rows doubles the gap, one of a single row ends its growth: events are rare again.
	journalCompany = 4
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
	issued   time.Time     // when the last job went to a writer
	early    int           // see journalEarly
	gap      time.Duration // from journalGap up to steady
	steady   time.Duration
	rushed   bool // pending rows do not wait for gap, only for journalGap, if at all
	spare    []*journalJob
	frontier frontier.Frontier[*journalJob]
	refusals refusals
}

// journalJob is the content of one journal transaction.
type journalJob struct {
	rows       []store.Published
	deliveries []*Delivery
	records    []*sink.Record
	retried    bool // some of them were parked
	ends       frontier.Ends
	refused    []*Delivery // rows that the journal does not take: dead letters, with the reason
}

func newJournal(limits config.Limits, steady time.Duration) journal {
	return journal{
		toWrite: make(chan *journalJob), written: make(chan *journalJob), pending: new(journalJob),
		early: max(1, min(journalEarly, limits.MaxUnrecorded/journalShare, limits.InFlightEvents/journalShare)),
		gap:   journalGap, steady: steady,
	}
}

// steadyGapOf is the longest gap; readsBack: topics can be read back after a crash.
func steadyGapOf(target config.Duration, readsBack bool) time.Duration {
	if !readsBack {
		return journalGap
	}
	return max(steadyGap, min(targetGaps*target.Std(), longestGap))
}

// add takes in an event that was published.
func (j *journal) add(d *Delivery) {
	rec, job := &d.Record, j.pending
	job.rows = append(job.rows, store.Published{
		Source: d.Event.Source, ID: d.Event.ID, Topic: rec.Topic, Partition: rec.Partition, Offset: rec.Offset,
		Mark: d.streamMark(),
	})
	job.deliveries = append(job.deliveries, d)
	job.records = append(job.records, rec)
	job.ends.Note(rec.Topic, rec.Partition, rec.Offset, rec.Complete)
}

// issue is called when a writer has taken what is pending.
func (j *journal) issue() {
	switch n := len(j.pending.rows); {
	case j.rushed || n == 1:
		j.gap = journalGap
	case n >= journalCompany:
		j.gap = min(2*j.gap, j.steady)
	}
	j.frontier.Issue(j.pending, &j.pending.ends)
	j.pending, j.issued = j.newJob(), time.Now()
}

// wait bounds how long the pending rows may still wait for company; an hour when there are none. While a journal
// transaction is under way they wait longer: one after it costs the server less than one beside it, unless it is
// slow. They wait for no longer than that while something hurries.
func (j *journal) wait(hurries func() bool) time.Duration {
	early, gap := j.early, journalGap
	if j.frontier.Waits() {
		early, gap = early*journalBeside, gap*journalBeside
	}
	n := len(j.pending.rows)
	if n == 0 {
		return time.Hour
	}
	if j.rushed = n >= early; j.rushed {
		return 0
	}
	if j.rushed = hurries(); !j.rushed {
		gap = max(gap, j.gap)
	}
	return gap - time.Since(j.issued)
}

// hurries reports whether something waits for the journal: a lane that is held, or has parked events that move, goes
// on only when what was sent of it is recorded; someone waits until nothing is in flight, as a stop does, or for
// the end of a backlog; or a share of the window or of max_unrecorded is used up.
func (l *loop) hurries() bool {
	if l.journal.pending.retried || len(l.lanes.byName) > 0 || len(l.parking.lanes) > 0 || l.settler.inflight.awaited() ||
		l.old != nil && l.old() {
		return true
	}
	window, unrecorded := l.settler.engine.Filled()
	return max(window, unrecorded)*journalShare > 1
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
		if o := l.settler.outboxes; o != nil {
			o.Journaled(j.rows)
		}
		select {
		case l.journal.written <- j:
		case <-ctx.Done():
			return
		}
	}
}

// commitJournal records a job. An event whose row the journal refuses becomes a dead letter that says where it is.
func (l *loop) commitJournal(ctx context.Context, j *journalJob) error {
	j.refused = j.refused[:0]
	return l.journal.refusals.narrow(0, len(j.rows), func(from, to int) error {
		if j.retried {
			return l.settler.tables.SettleRetried(ctx, j.rows[from:to])
		}
		return l.settler.tables.Settle(ctx, j.rows[from:to], nil)
	}, func(i int, why error) error {
		d := j.deliveries[i]
		d.Reason = refusedReason("NOT_JOURNALED", fmt.Sprintf("it is in the topic, at offset %d of partition %d, and the "+
			"journal refuses its row, so a replay publishes it twice", d.Record.Offset, d.Record.Partition), why)
		j.refused = append(j.refused, d)
		dead := deadOf(d)
		dead.Partition = d.Record.Partition
		return l.writeDeadLetter(ctx, d, dead)
	})
}

func (l *loop) finishJournal(j *journalJob) {
	l.settler.breaker.published(len(j.rows))
	for _, d := range j.refused {
		l.tellDied(d)
	}
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
	clear(j.refused)
	j.rows, j.deliveries, j.records = j.rows[:0], j.deliveries[:0], j.records[:0]
	for _, passed := range l.journal.frontier.Written(j) {
		passed.retried = false
		l.journal.spare = append(l.journal.spare, passed)
	}
	l.lanes.advance()
	l.parking.advance()
	signal(l.progress)
}
