package inbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-relay/cdc-relay/inbox/internal/lanes"
	"github.com/cdc-relay/cdc-relay/inbox/internal/ledger"
)

const (
	pollMost     = 2_000
	pollPaused   = 10 * time.Millisecond // how long a poll waits while partitions are paused
	rebalanceEnd = 5 * time.Second       // before the group's patience ends, what runs is cut off
	firstWait    = 3 * time.Second
	askEvery     = 5 * time.Second

	// A partition that was paused is fetched again when the fetch of the others ends, and that of a broker that has
	// nothing for them ends after this time only. The client's five seconds would be spent so, again and again, by a
	// consumer that catches up.
	fetchWait = 100 * time.Millisecond
)

// kafka is the feed of a Kafka group. What its callbacks and requests note is guarded by the session's mu.
type kafka struct {
	*session
	client *kgo.Client            // kept by a hook: see hooks.OnNewClient
	others map[lanes.Place]string // partitions that another consumer of the group has; inquire's

	refused   error     // why the group did not take the process in, last
	refusedAt time.Time // and when
	doubtful  bool      // the last answer may be that the membership is over
}

func (k *kafka) system() string { return "kafka" }

// run feeds the engine and asks the brokers, until the context ends.
func (k *kafka) run(ctx context.Context) {
	var all sync.WaitGroup
	for _, do := range []func(context.Context){k.poll, k.inquire, k.warnOfRetention, k.askTimeout} {
		all.Go(func() { do(ctx) })
	}
	all.Wait()
}

// leave ends the membership.
func (k *kafka) leave() { k.client.CloseAllowingRebalance() }

func (k *kafka) dial() error {
	config := k.c.config
	options := []kgo.Opt{
		kgo.SeedBrokers(config.Brokers...), kgo.ConsumerGroup(config.Group), kgo.ConsumeTopics(config.Topics...),
		kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()),
		// What is known is skipped: reading a log again from its start costs time, and skipping its events would lose them.
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxWait(fetchWait),
		kgo.RebalanceTimeout(rebalanceTimeout), kgo.SessionTimeout(sessionTimeout),
		kgo.AdjustFetchOffsetsFn(k.assigned),
		kgo.OnPartitionsRevoked(k.revoked), kgo.OnPartitionsLost(k.lost),
		kgo.WithHooks(&hooks{k}), kgo.ClientID("cdc-relay-inbox"),
	}
	if config.ConsumerProtocol {
		options = append(options, kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer()))
	}
	if config.InstanceID != "" {
		options = append(options, kgo.InstanceID(config.InstanceID))
	}
	if _, err := kgo.NewClient(append(options, config.Client...)...); err != nil {
		return fmt.Errorf("inbox: make a Kafka client: %w", err)
	}
	k.learnTimeout()
	return nil
}

// hooks are the client's calls that are none of the group's.
type hooks struct{ k *kafka }

// OnNewClient keeps the client before it joins the group: NewClient can return after the first partitions are assigned.
func (h *hooks) OnNewClient(client *kgo.Client) { h.k.client = client }

// OnBrokerE2E notes when a request was sent that the group's coordinator has answered: a process that was frozen reads
// old answers when it thaws.
func (h *hooks) OnBrokerE2E(_ kgo.BrokerMetadata, key int16, e2e kgo.BrokerE2E) {
	if e2e.Err() == nil {
		h.k.answered(key, time.Now().Add(-e2e.DurationE2E()))
	}
}

// poll feeds the engine. Between a poll and its end no rebalance happens, so records come to the assignment that they
// were fetched for.
func (k *kafka) poll(ctx context.Context) {
	for ctx.Err() == nil {
		paused := k.engine.Pressure(
			func(full []lanes.Place) { k.client.PauseFetchPartitions(byTopic(full)) },
			func(free []lanes.Place) { k.client.ResumeFetchPartitions(byTopic(free)) })
		polling, cancel := ctx, context.CancelFunc(func() {})
		if paused > 0 {
			polling, cancel = context.WithTimeout(ctx, pollPaused)
		}
		fetches := k.client.PollRecords(polling, pollMost)
		cancel()
		if fetches.IsClientClosed() {
			return
		}
		fetches.EachError(k.fetchFailed)
		fetches.EachPartition(k.fed)
		k.client.AllowRebalance()
	}
}

func byTopic(places []lanes.Place) map[string][]int32 {
	m := map[string][]int32{}
	for _, p := range places {
		m[p.Topic] = append(m[p.Topic], p.Partition)
	}
	return m
}

func places(m map[string][]int32) []lanes.Place {
	var all []lanes.Place
	for topic, partitions := range m {
		for _, p := range partitions {
			all = append(all, lanes.Place{Topic: topic, Partition: p})
		}
	}
	return all
}

// assigned is called between the fetch of the group's offsets and the first record: the one place where a partition
// begins. Offsets first, then parked lanes, then records.
func (k *kafka) assigned(
	ctx context.Context, offsets map[string]map[int32]kgo.Offset,
) (map[string]map[int32]kgo.Offset, error) {
	if len(offsets) == 0 {
		return offsets, nil
	}
	k.c.metric(func(m Metrics) { m.Rebalanced("assigned") })
	pause := firstPause
	for {
		adjusted, err := k.assign(ctx, offsets)
		if err == nil || errors.Is(err, ledger.ErrSetBack) {
			if err != nil {
				k.fail(err)
			}
			return adjusted, err
		}
		k.c.config.Log.Warn("inbox: reading where partitions begin", "consumer", k.c.config.Name, "error", err)
		select {
		case <-ctx.Done():
			return nil, err
		case <-k.hard.Done():
			return nil, err
		case <-time.After(pause):
			pause = min(2*pause, time.Second)
		}
	}
}

func (k *kafka) assign(
	ctx context.Context, offsets map[string]map[int32]kgo.Offset,
) (map[string]map[int32]kgo.Offset, error) {
	ids, err := k.topics(ctx, slices.Collect(maps.Keys(offsets)))
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	maps.Copy(k.topicIDs, ids)
	k.mu.Unlock()
	first := k.firstOffsets(ctx, offsets)
	var partitions []ledger.Partition
	var all []ledger.Place
	for topic, of := range offsets {
		for number, offset := range of {
			p := ledger.Partition{Place: ledger.Place{Topic: topic, Partition: number}, TopicID: ids[topic],
				Next: first[lanes.Place{Topic: topic, Partition: number}]}
			if committed := offset.EpochOffset().Offset; committed > 0 && k.c.config.Start == Committed {
				p.Next = committed
			}
			partitions, all = append(partitions, p), append(all, p.Place)
		}
	}
	slices.SortFunc(partitions, func(a, b ledger.Partition) int { // so that two members lock rows in one order
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	starts, err := k.ledger.Starts(ctx, k.holder, partitions)
	if err != nil {
		return nil, err
	}
	names, err := k.parkedLanes(ctx, all)
	if err != nil {
		return nil, err
	}
	adjusted := make(map[string]map[int32]kgo.Offset, len(offsets))
	for _, p := range partitions {
		if adjusted[p.Topic] == nil {
			adjusted[p.Topic] = map[int32]kgo.Offset{}
		}
		at := lanes.Place(p.Place)
		next := lower(starts[p.Place], p.Next, offsets[p.Topic][p.Partition])
		adjusted[p.Topic][p.Partition] = kgo.NewOffset().At(next)
		wrote := p.Next
		if starts[p.Place].Known {
			wrote = starts[p.Place].Next
		}
		if former := starts[p.Place].Former; former > 0 {
			k.remade(at, starts[p.Place].FormerID, former)
		}
		k.lostRecords(at, 0)
		_, listed := first[at]
		k.begin(at, next, wrote, names[at], starts[p.Place].Unclean, next == 0 && !listed && !starts[p.Place].Known)
		// A pause outlives an assignment.
		k.client.ResumeFetchPartitions(map[string][]int32{at.Topic: {at.Partition}})
	}
	return adjusted, nil
}

// firstOffsets asks where the partitions' logs start: a consumer that has never read them begins there, and has lost
// nothing of what was deleted before. Those that a broker does not tell are missing in the answer.
func (k *kafka) firstOffsets(
	ctx context.Context, offsets map[string]map[int32]kgo.Offset,
) map[lanes.Place]int64 {
	ctx, cancel := context.WithTimeout(ctx, firstWait)
	defer cancel()
	var all []lanes.Place
	for topic, of := range offsets {
		for number := range of {
			all = append(all, lanes.Place{Topic: topic, Partition: number})
		}
	}
	first, err := k.listed(ctx, all, earliest)
	if err != nil {
		k.c.config.Log.Debug("inbox: asking where partitions start", "consumer", k.c.config.Name, "error", err)
	}
	return first
}

// lower is where a partition begins: at the lower of the database's offset and Kafka's. A database that was set back is
// filled up again, and an offset that a zombie has set back does no harm.
func lower(start ledger.Start, first int64, group kgo.Offset) int64 {
	if !start.Known {
		return first
	}
	if committed := group.EpochOffset().Offset; committed >= 0 {
		return min(start.Next, committed)
	}
	return start.Next
}

// revoked hands partitions over in good order: what runs may end, then their offsets are noted.
func (k *kafka) revoked(_ context.Context, _ *kgo.Client, m map[string][]int32) {
	if len(m) == 0 || k.isClosing() {
		return
	}
	k.c.metric(func(m Metrics) { m.Rebalanced("revoked") })
	k.handOver(places(m), rebalanceTimeout-rebalanceEnd)
}

// lost drops partitions that others may have already: what runs is cut off, and none of it counts.
func (k *kafka) lost(_ context.Context, _ *kgo.Client, m map[string][]int32) {
	if len(m) == 0 || k.isClosing() {
		return
	}
	k.c.metric(func(m Metrics) { m.Rebalanced("lost") })
	k.lose(places(m))
}

// tell commits to Kafka, which takes it from any member for any partition: see docs/inbox.md.
func (k *kafka) tell(ctx context.Context, next map[lanes.Place]int64) (err error) {
	offsets := map[string]map[int32]kgo.EpochOffset{}
	for at, offset := range next {
		if offsets[at.Topic] == nil {
			offsets[at.Topic] = map[int32]kgo.EpochOffset{}
		}
		offsets[at.Topic][at.Partition] = kgo.EpochOffset{Epoch: -1, Offset: offset}
	}
	ctx = kgo.PreCommitFnContext(ctx, func(request *kmsg.OffsetCommitRequest) error {
		for _, t := range request.Topics {
			for i := range t.Partitions {
				t.Partitions[i].Metadata = kmsg.StringPtr(nameMark + mark(k.c.config.Name))
			}
		}
		return nil
	})
	k.client.CommitOffsetsSync(ctx, offsets,
		func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, answer *kmsg.OffsetCommitResponse, failed error) {
			if err = failed; failed != nil {
				return
			}
			for _, topic := range answer.Topics {
				for _, p := range topic.Partitions {
					if code := kerr.ErrorForCode(p.ErrorCode); code != nil && err == nil {
						err = fmt.Errorf("commit the offset of %s/%d: %w", topic.Topic, p.Partition, code)
					}
				}
			}
		})
	return err
}
