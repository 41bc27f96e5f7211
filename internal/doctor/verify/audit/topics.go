package audit

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/doctor/verify"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store"
)

const (
	readersAtOnce = 4 // partitions read side by side
	tellEvery     = 200 * time.Millisecond
	// journalLag is how much later than the broker the journal may say that a record was written, clocks included.
	journalLag = time.Minute
)

// source is a kind of broker, as an audit asks it.
type source interface {
	// find finds a topic; no ends: there is none. Reading begins where it says.
	find(ctx context.Context, topic string) (foundTopic, error)
	// begins asks again where the partitions begin; ends, where they end.
	begins(ctx context.Context, topic string, ends []*partitionEnd) error
	ends(ctx context.Context, topic string, ends []*partitionEnd) error
	// read hands out what lies between next and end, in order, and moves next.
	read(ctx context.Context, p *partitionEnd, each func(stored) error) error
	close()
}

// foundTopic is a topic as its source reports it.
type foundTopic struct {
	ends  []*partitionEnd
	thins bool   // it may have removed any record by rules of its own
	note  string // what a person should know of that
}

// topicReader reads the topics that rows can be in, each partition from its beginning, in portions; partitions side by
// side.
type topicReader struct {
	source
	cfg        config.Config
	idHeader   string
	madeHeader string                     // of created_at
	payload    string                     // type of the payload column
	sources    []string                   // of our records; none when the relay has never run
	topics     map[string][]*partitionEnd // by topic; nil for one that does not exist
	thins      map[string]bool            // topics that may have removed any record by rules of their own
	notes      []string
}

// partitionEnd is how far one partition was read.
type partitionEnd struct {
	topic     string
	partition int
	first     int64  // the log's first offset, as asked last
	next      int64  // to be read next
	end       int64  // the log's end when this portion began
	unread    int64  // from there on nothing came although the log goes on; -1 = everything was read
	note      string // what a person should know about the reading
	nameless  nameless

	oldest  time.Time // when the record at first was written, where that is known and first is not 0
	deleted int64     // up to there clients have deleted records; 0 = they have not
}

// nameless are records of this relay that have no id under the name that the configuration gives it: they are of the
// time of another message.format or message.headers. Which rows they are no one knows.
type nameless struct {
	count       int
	first, last int64 // offsets; meaningless without a count
}

func (n *nameless) add(offset int64) {
	if n.count++; n.count == 1 {
		n.first = offset
	}
	n.last = offset
}

func (n *nameless) mayHold(offset int64) bool {
	return n.count > 0 && offset >= n.first && offset <= n.last
}

// said are the notes of the whole reading.
func (r *topicReader) said() []string {
	notes := slices.Clone(r.notes)
	foreign := 0
	for _, ends := range r.topics {
		for _, p := range ends {
			foreign += p.nameless.count
			if p.note != "" {
				notes = append(notes, p.note)
			}
		}
	}
	if foreign > 0 {
		notes = append(notes,
			fmt.Sprintf("%d records of this relay have no header %q: they were written under another message.format or "+
				"message.headers, and cannot be compared with rows; rows of that time are called missing, not lost. Verify them "+
				"with the configuration of then", foreign, r.idHeader))
	}
	slices.Sort(notes)
	return notes
}

func newTopicReader(ctx context.Context, cfg config.Config, st *store.Store) (*topicReader, error) {
	state, err := st.State(ctx)
	if err != nil {
		return nil, err
	}
	table, err := st.Outbox(ctx)
	if err != nil {
		return nil, err
	}
	sources, err := st.Sources(ctx)
	if err != nil {
		return nil, err
	}
	from, err := sourceOf(cfg)
	if err != nil {
		return nil, err
	}
	names := cfg.Message.HeaderNames()
	r := &topicReader{
		source: from, cfg: cfg, idHeader: names[0], madeHeader: names[3], payload: table.PayloadType,
		topics: map[string][]*partitionEnd{}, thins: map[string]bool{},
	}
	for _, source := range sources {
		if state != nil {
			for _, system := range append([]string{state.SystemID}, state.FormerSystems...) {
				r.sources = append(r.sources, outbox.Source(system, state.Timeline, source))
			}
		}
	}
	return r, nil
}

// follow makes the topic one that is read.
func (r *topicReader) follow(ctx context.Context, topic string) error {
	if _, known := r.topics[topic]; known {
		return nil
	}
	found, err := r.find(ctx, topic)
	if err != nil {
		return err
	}
	r.topics[topic], r.thins[topic] = found.ends, found.thins
	if len(found.ends) == 0 {
		found.note = fmt.Sprintf("no topic %s", topic)
	}
	if found.note != "" {
		r.notes = append(r.notes, found.note)
	}
	return nil
}

// place is where a journaled row must be; the zero Place: no one knows.
func (r *topicReader) place(row *store.AuditRow, topic string) verify.Place {
	if row.Topic != "" {
		return verify.Place{Topic: row.Topic, Partition: row.Partition, Offset: row.Offset}
	}
	if _, kafka := r.source.(onKafka); kafka || row.JournaledAt.IsZero() {
		return verify.Place{}
	}
	return verify.Somewhere(topic, row.JournaledAt)
}

// beginnings asks once more where the logs begin: retention goes on while they are read.
func (r *topicReader) beginnings(ctx context.Context) error {
	for topic, ends := range r.topics {
		if len(ends) == 0 {
			continue
		}
		if err := r.begins(ctx, topic, ends); err != nil {
			return err
		}
	}
	return nil
}

// why says why there is no record at a place where the journal has one.
func (r *topicReader) why(at verify.Place) verify.Absence {
	if r.thins[at.Topic] {
		return verify.Removed
	}
	for _, p := range r.topics[at.Topic] {
		if p.partition == int(at.Partition) {
			return p.why(at)
		}
	}
	return verify.Gone
}

func (p *partitionEnd) why(at verify.Place) verify.Absence {
	if journaled, somewhere := at.Journaled(); somewhere {
		switch {
		case p.first > 0 && journaled.Before(p.oldest.Add(journalLag)):
			return verify.Removed
		case p.unread >= 0 || p.nameless.count > 0:
			return verify.Unread
		}
		return verify.Gone
	}
	switch {
	case at.Offset < p.first:
		return verify.Removed
	case p.unread >= 0 && at.Offset >= p.unread, p.nameless.mayHold(at.Offset), p.deleted > 0 && at.Offset <= p.deleted:
		return verify.Unread
	}
	return verify.Gone
}

// readOn reads all topics from where the last portion ended to their present ends.
func (r *topicReader) readOn(ctx context.Context, t *truth) error {
	var work []*partitionEnd
	var total int64
	for topic, ends := range r.topics {
		if len(ends) == 0 {
			continue
		}
		if err := r.ends(ctx, topic, ends); err != nil {
			return err
		}
		for _, p := range ends {
			if p.next < p.end {
				work = append(work, p)
				total += p.end - p.next
			}
		}
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(readersAtOnce)
	var seen atomic.Int64
	told := r.telling(ctx, t, &seen, total)
	for _, p := range work {
		group.Go(func() error { return r.readPartition(groupCtx, p, t, &seen) })
	}
	err := group.Wait()
	told()
	return err
}

// telling shows how far the reading is until the function that it returns is called.
func (r *topicReader) telling(ctx context.Context, t *truth, seen *atomic.Int64, total int64) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	var showing sync.WaitGroup
	showing.Go(func() {
		began := time.Now()
		ticker := time.NewTicker(tellEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				n := seen.Load()
				t.tell(fmt.Sprintf("%d of %d records read (%d %%), %.0f/s", n, total, n*100/max(total, 1),
					float64(n)/time.Since(began).Seconds()))
			case <-ctx.Done():
				return
			}
		}
	})
	return func() {
		cancel()
		showing.Wait()
	}
}
