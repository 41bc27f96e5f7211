package redis

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/cdc-relay/cdc-relay/internal/conditional"
	"github.com/cdc-relay/cdc-relay/internal/redisconn"
	"github.com/cdc-relay/cdc-relay/sink"
)

//go:embed add.lua
var addText string

var addScript = redis.NewScript(addText)

//go:embed keep_queue.lua
var keepQueueText string

const (
	// scriptJobs is how many jobs one script adds: it holds the server's only thread for about 2 ms.
	scriptJobs = 100
	// readNotes is how many notes are asked for at once when a queue is read back.
	readNotes = 1000
)

// queue is one queue as package conditional sees it.
type queue struct {
	driver *BullMQ
	name   string
	keys   []string // those of the script
	jobs   string   // what begins the key of a job
	log    *conditional.Log
}

// Of queue.keys.
const (
	endKey   = 0
	notesKey = 1
)

func newQueue(d *BullMQ, name string) *queue {
	q := &queue{driver: d, name: name, log: conditional.NewLog(&d.outboxes), jobs: d.config.Prefix + ":" + name + ":"}
	// Not among the queue's own keys, where the libraries clean up, and in the same slot of a cluster.
	ours := "cdc-relay:" + q.jobs
	q.keys = []string{ours + "end", ours + "notes"}
	theirs := []string{"id", "wait", "paused", "meta", "active", "events", "marker"}
	if d.config.Library == LibraryBull {
		theirs = []string{"id", "wait", "paused", "meta", "meta-paused"}
	}
	for _, key := range theirs {
		q.keys = append(q.keys, q.jobs+key)
	}
	return q
}

// blame makes the error say whose it is.
func (q *queue) blame(err error) error { return q.driver.Blame("queue "+q.name, q.grants(), err) }

// grants are the keys, and channels, that the user must be allowed.
func (q *queue) grants() string {
	keys := fmt.Sprintf("'~%s*' '~cdc-relay:%[1]s*' ", q.jobs)
	if q.driver.config.Library == LibraryBull {
		keys += fmt.Sprintf("'&%s*' ", q.jobs)
	}
	return keys
}

// End implements [conditional.Stream].
func (q *queue) End(ctx context.Context) (int64, error) {
	end, err := q.driver.Client.Get(ctx, q.keys[endKey]).Int64()
	if errors.Is(err, redis.Nil) {
		return 0, nil
	}
	if err != nil {
		return 0, q.blame(err)
	}
	return end, nil
}

// Mark implements [conditional.Stream].
func (q *queue) Mark(r *sink.Record) conditional.Mark { return markOfJob(r) }

// Portion implements [conditional.Stream].
func (q *queue) Portion() int { return scriptJobs }

// Append implements [conditional.Stream], in one script.
func (q *queue) Append(ctx context.Context, end int64, records []*sink.Record) (a conditional.Answer) {
	args, n, reason := q.compose(end, records)
	if reason != nil {
		return conditional.RefuseAt(n, reason, func() conditional.Answer { return q.Append(ctx, end, records[:n]) })
	}
	moved, err := q.run(ctx, end, args)
	var wrong *unfit
	switch {
	case moved:
		a.Verdict, a.Moved, a.Err = sink.NotWritten, true, err
	case errors.As(err, &wrong):
		a.Verdict, a.Err, a.Pause, a.Code = sink.NotWritten, q.blame(err), true, "FOREIGN_QUEUE"
	case err != nil:
		q.driver.Failed(&a, "queue "+q.name, q.grants(), err)
	default:
		a.Verdict = sink.Accepted
		for i := range records {
			a.Offsets = append(a.Offsets, end+1+int64(i))
		}
	}
	return a
}

// Keeps implements [conditional.Keeper].
func (q *queue) Keeps() bool { return q.driver.Keeps() }

// Keep implements [conditional.Keeper].
func (q *queue) Keep(ctx context.Context, end int64) error {
	if err := q.driver.Keep(ctx, keepQueueText, q.keys[endKey], strconv.FormatInt(end, 10)); err != nil {
		return q.blame(err)
	}
	return nil
}

// What the script answers first.
const (
	answeredMoved   = 0
	answeredAdded   = 1
	answeredForeign = 2
)

// compose makes the script's arguments, up to a record that cannot be a job.
func (q *queue) compose(end int64, records []*sink.Record) (args []any, n int, reason *sink.Reason) {
	c := &q.driver.config
	args = append(make([]any, 0, 4+6*len(records)), strconv.FormatInt(end, 10), max(c.Unrecorded, scriptJobs), q.jobs,
		c.Library)
	n, reason = sink.Compose(records, func(i int, r *sink.Record) {
		id := jobID(fill(c.JobID, r), end+1+int64(i))
		data, options := c.job(q.driver.opening, id, r)
		args = append(args, id, fill(c.JobName, r), r.Timestamp, data, options, c.note(r))
	})
	return args, n, reason
}

// run runs the script.
func (q *queue) run(ctx context.Context, end int64, args []any) (moved bool, err error) {
	answer, err := addScript.Run(ctx, q.driver.Client, q.keys, args...).Slice()
	if err != nil {
		return false, err
	}
	if len(answer) != 2 {
		return false, fmt.Errorf("the script answered %v", answer)
	}
	switch did, _ := answer[0].(int64); did {
	case answeredMoved:
		return true, fmt.Errorf("queue %s counts %v jobs, not %d", q.name, answer[1], end)
	case answeredForeign:
		return false, foreign(q.driver.config.Library, answer[1])
	}
	return false, nil
}

// Behind implements [conditional.Stream].
func (q *queue) Behind(ctx context.Context, end int64, each func(conditional.Found)) (int64, error) {
	last, err := q.End(ctx)
	if err != nil {
		return end, err
	}
	if last < end {
		return last, conditional.ErrWentBack
	}
	kept, err := q.read(ctx, end+1, last)
	if err != nil {
		return end, err
	}
	for _, k := range kept {
		each(conditional.Found{Offset: k.position, Mark: conditional.Mark(k.note.Mark), Source: string(k.note.Source)})
	}
	return last, nil
}

// kept is a note with its job's position.
type kept struct {
	position int64
	note     note
}

// read reads the notes of the positions, in order. The list has the newest first; what a script left that failed is
// behind the end, or stands before the note that counts.
func (q *queue) read(ctx context.Context, from, upTo int64) (all []kept, err error) {
	next := upTo // nothing from here on is wanted any more
	for at := int64(0); next >= from; at += readNotes {
		texts, err := q.driver.Client.LRange(ctx, q.keys[notesKey], at, at+readNotes-1).Result()
		if err != nil {
			return nil, q.blame(err)
		}
		for _, text := range texts {
			k, err := parse(text)
			if err != nil {
				return nil, q.blame(err)
			}
			if k.position >= from && k.position <= next {
				all = append(all, k)
			}
			next = min(next, k.position-1)
		}
		if len(texts) < readNotes {
			break
		}
	}
	slices.Reverse(all)
	return all, nil
}

func parse(text string) (k kept, err error) {
	position, rest, _ := strings.Cut(text, " ")
	if k.position, err = strconv.ParseInt(position, 10, 64); err == nil {
		err = json.Unmarshal([]byte(rest), &k.note)
	}
	if err == nil && len(k.note.Mark) != len(conditional.Mark{}) {
		err = errors.New("its mark has another length")
	}
	if err != nil {
		return k, &unfit{fmt.Sprintf("its note %.100q cannot be read: %v", text, err)}
	}
	return k, nil
}

// Tail implements [sink.Tailer], from the notes: of jobs before them nothing is known. It leaves the queue's log at the
// end up to which it has read.
func (d *BullMQ) Tail(ctx context.Context, query sink.TailQuery, each func(sink.TailRecord) error) error {
	q, _ := d.queueOf(query.Topic)
	last, err := q.End(ctx)
	if err != nil {
		return redisconn.Passing(err)
	}
	from := max(query.From[0], 1)
	if q.Keeps() && last >= from { // what is read may be the master's alone
		if err := q.Keep(ctx, last); err != nil {
			return redisconn.Passing(err)
		}
	}
	all, err := q.read(ctx, from, last)
	if err != nil {
		return redisconn.Passing(err)
	}
	query.Lost(last - from + 1 - int64(len(all)))
	for _, k := range all {
		rec := sink.TailRecord{Offset: k.position}
		for i, header := range query.Headers {
			switch header {
			case "":
			case d.config.IDHeader:
				rec.Headers[i] = k.note.ID
			case sourceHeader:
				rec.Headers[i] = k.note.Source
			case errorClassHeader:
				rec.Headers[i] = k.note.ErrorClass
			}
		}
		if err := each(rec); err != nil {
			return err
		}
	}
	if err := q.log.Start(ctx, last); err != nil {
		return redisconn.Passing(err)
	}
	return nil
}

// Defer implements [sink.Deferrer].
func (d *BullMQ) Defer(ctx context.Context, query sink.TailQuery) bool {
	q, _ := d.queueOf(query.Topic)
	return q.log.Defer(ctx, max(query.From[0], 1)-1) == nil
}

// unfit reports that the queue is none that jobs can be added to.
type unfit struct{ text string }

func (u *unfit) Error() string { return u.text }

// Trouble implements [sink.Troubled].
func (*unfit) Trouble() sink.Trouble { return sink.TopicTrouble }

// foreign reports that the queue was opened by another library than the jobs are for.
func foreign(library string, opened any) error {
	if library == LibraryBull {
		return &unfit{fmt.Sprintf("it was opened by %v, and redis.version is 4", opened)}
	}
	return &unfit{fmt.Sprintf("it was opened last by %q; jobs are added for the workers of LibraryBullMQ 5 and 6", opened)}
}
