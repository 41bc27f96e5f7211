package audit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"golang.org/x/sync/errgroup"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/drivers"
	"github.com/cdc-relay/cdc-relay/outbox"
	"github.com/cdc-relay/cdc-relay/store"
	"github.com/cdc-relay/cdc-relay/verify"
)

const (
	readersAtOnce = 4                // partitions read side by side
	readPatience  = 10 * time.Second // without a record although the log goes on: it is said, and the rest left
	fetchBytes    = 4 << 20
	// leaderPatience is longer than the client keeps what it knows of the cluster, 6 s.
	leaderPatience = 20 * time.Second
	tellEvery      = 200 * time.Millisecond
)

// topicReader reads the topics that rows can be in, each partition from its beginning, in portions; partitions side by
// side.
type topicReader struct {
	cfg      config.Config
	client   *kafkago.Client
	idHeader string
	payload  string                     // type of the payload column
	sources  []string                   // of our records; none when the relay has never run
	topics   map[string][]*partitionEnd // by topic; nil for one that does not exist
	compact  map[string]bool            // topics that keep only the last record of a key, or of which that is not known
	notes    []string
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
}

// nameless are records of this relay that have no id under the name that the configuration gives it: they are of the
// time of another message.format or message.headers. Which rows they are nobody knows.
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
	_, client, err := drivers.KafkaClients(cfg)
	if err != nil {
		return nil, err
	}
	r := &topicReader{
		cfg: cfg, idHeader: cfg.Message.HeaderNames()[0], payload: table.PayloadType, topics: map[string][]*partitionEnd{},
		compact: map[string]bool{},
		client:  client,
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

func (r *topicReader) close() {
	r.client.Transport.(*kafkago.Transport).CloseIdleConnections()
}

// follow makes the topic one that is read.
func (r *topicReader) follow(ctx context.Context, topic string) error {
	if _, known := r.topics[topic]; known {
		return nil
	}
	answer, err := r.client.Metadata(ctx, &kafkago.MetadataRequest{Topics: []string{topic}})
	if err != nil {
		return fmt.Errorf("ask for topic %s: %w", topic, err)
	}
	r.topics[topic] = nil
	if len(answer.Topics) == 0 || errors.Is(answer.Topics[0].Error, kafkago.UnknownTopicOrPartition) {
		r.notes = append(r.notes, fmt.Sprintf("there is no topic %s", topic))
		return nil
	}
	if answer.Topics[0].Error != nil {
		return fmt.Errorf("ask for topic %s: %w", topic, answer.Topics[0].Error)
	}
	var ends []*partitionEnd
	for _, p := range answer.Topics[0].Partitions {
		ends = append(ends, &partitionEnd{topic: topic, partition: p.ID, unread: -1})
	}
	slices.SortFunc(ends, func(a, b *partitionEnd) int { return a.partition - b.partition })
	err = r.ask(ctx, topic, ends, kafkago.FirstOffsetOf, func(p *partitionEnd, o kafkago.PartitionOffsets) {
		p.first, p.next = o.FirstOffset, o.FirstOffset
	})
	if err != nil {
		return err
	}
	r.topics[topic] = ends
	r.compact[topic], err = r.compacted(ctx, topic)
	return err
}

// compacted says whether the topic may have removed a record because its key has a newer one. A broker that does not
// tell is taken to have: what is missing is then not called lost.
func (r *topicReader) compacted(ctx context.Context, topic string) (bool, error) {
	answer, err := r.client.DescribeConfigs(ctx,
		&kafkago.DescribeConfigsRequest{Resources: []kafkago.DescribeConfigRequestResource{
			{ResourceType: kafkago.ResourceTypeTopic, ResourceName: topic, ConfigNames: []string{"cleanup.policy"}},
		}})
	if err != nil {
		return false, fmt.Errorf("ask for the configuration of topic %s: %w", topic, err)
	}
	for _, resource := range answer.Resources {
		for _, entry := range resource.ConfigEntries {
			if resource.Error == nil && entry.ConfigName == "cleanup.policy" {
				return strings.Contains(entry.ConfigValue, "compact"), nil
			}
		}
	}
	r.notes = append(r.notes,
		fmt.Sprintf("topic %s: the broker does not tell its cleanup.policy (the principal needs DescribeConfigs): what it "+
			"does not hold is counted as removed by it", topic))
	return true, nil
}

// ask asks for offsets of all partitions, again and again while one has no leader that knows of it: so it is just after
// a topic was made or a leader moved.
func (r *topicReader) ask(ctx context.Context, topic string, ends []*partitionEnd,
	which func(int) kafkago.OffsetRequest, take func(*partitionEnd, kafkago.PartitionOffsets)) error {
	for deadline := time.Now().Add(leaderPatience); ; {
		err := r.askOnce(ctx, topic, ends, which, take)
		code, ok := errors.AsType[kafkago.Error](err)
		if !ok || !slices.Contains(leaderless, code) || time.Now().After(deadline) {
			return err
		}
		select {
		case <-time.After(lookAgain):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// leaderless are the answers about a partition whose leader is another one, or none, or does not know of it yet.
var leaderless = []kafkago.Error{
	kafkago.UnknownTopicOrPartition, kafkago.LeaderNotAvailable, kafkago.NotLeaderForPartition,
	kafkago.ReplicaNotAvailable, kafkago.FencedLeaderEpoch,
	kafkago.UnknownLeaderEpoch, kafkago.OffsetNotAvailable,
}

func (r *topicReader) askOnce(ctx context.Context, topic string, ends []*partitionEnd,
	which func(int) kafkago.OffsetRequest, take func(*partitionEnd, kafkago.PartitionOffsets)) error {
	var requests []kafkago.OffsetRequest
	for _, p := range ends {
		requests = append(requests, which(p.partition))
	}
	answer, err := r.client.ListOffsets(ctx,
		&kafkago.ListOffsetsRequest{Topics: map[string][]kafkago.OffsetRequest{topic: requests}})
	if err != nil {
		return fmt.Errorf("ask for the offsets of topic %s: %w", topic, err)
	}
	for _, o := range answer.Topics[topic] {
		if o.Error != nil {
			return fmt.Errorf("ask for the offsets of topic %s, partition %d: %w", topic, o.Partition, o.Error)
		}
		for _, p := range ends {
			if p.partition == o.Partition {
				take(p, o)
			}
		}
	}
	return nil
}

// beginnings asks once more where the logs begin: retention goes on while they are read.
func (r *topicReader) beginnings(ctx context.Context) error {
	for topic, ends := range r.topics {
		if len(ends) == 0 {
			continue
		}
		if err := r.ask(ctx, topic, ends, kafkago.FirstOffsetOf, func(p *partitionEnd, o kafkago.PartitionOffsets) {
			p.first = o.FirstOffset
		}); err != nil {
			return err
		}
	}
	return nil
}

// why says why there is no record at a place where the journal has one.
func (r *topicReader) why(at verify.Place) verify.Absence {
	if r.compact[at.Topic] {
		return verify.Removed
	}
	for _, p := range r.topics[at.Topic] {
		switch {
		case p.partition != int(at.Partition):
		case at.Offset < p.first:
			return verify.Removed
		case p.unread >= 0 && at.Offset >= p.unread, p.nameless.mayHold(at.Offset):
			return verify.Unread
		}
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
		if err := r.ask(ctx, topic, ends, kafkago.LastOffsetOf, func(p *partitionEnd, o kafkago.PartitionOffsets) {
			p.end = o.LastOffset
		}); err != nil {
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
