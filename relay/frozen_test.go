package relay_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// freezeBroker makes the broker take connections and requests and answer none, until thaw.
func (b *bed) freezeBroker() (thaw func()) {
	thawed := make(chan struct{})
	b.broker.Cluster().Control(func(kmsg.Request) (kmsg.Response, error, bool) {
		<-thawed
		return nil, nil, false
	})
	thaw = sync.OnceFunc(func() { close(thawed) })
	b.t.Cleanup(thaw)
	return thaw
}

// The only broker freezes, and then come events for a topic that this process has not asked for yet. Breaks it
// catches: a frozen broker taken for a missing topic, so that events are parked that nothing is wrong with; a relay
// that calls itself ready in the meantime; a log that does not say it, or more than once. Seen to fail with a topic
// without an answer taken for one in trouble and old answers believed, and with the look of the log left out.
func TestEventsForANewTopicWaitForAFrozenBroker(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	const rows, line, well = 20, "broker unavailable; ", "broker recovered"
	b := newBed(t)
	log := &harness.Log{}
	b.log = log
	b.createTopic("outbox.event.fresh", 3)
	r, stop := b.start()
	b.waitRole(r, relay.RoleActive)
	b.pg.Exec(t, many(1, 1, 1))
	b.waitRecorded(1)
	thaw := b.freezeBroker()
	for i := range rows {
		b.pg.Exec(t, insert("fresh", fmt.Sprintf("k%d", i%3), fmt.Sprintf(`{"n": %d}`, i), ""))
	}
	b.waitReason(r, "ask for partitions and leaders") // after longer than a topic's trouble is waited for
	harness.Eventually(t, bedPatience, "the log says it", func(context.Context) string {
		if !strings.Contains(log.String(), line) {
			return log.String()
		}
		return ""
	})
	if n := b.pg.Query(t, "SELECT count(*) FROM cdc_relay_parked"); n != "0" {
		t.Errorf("parked while the broker is frozen: got %s, want none", n)
	}
	thaw()
	b.waitRecorded(rows + 1)
	b.waitReady(r)
	harness.Eventually(t, bedPatience, "the log says that it is over", func(context.Context) string {
		if !strings.Contains(log.String(), well) {
			return log.String()
		}
		return ""
	})
	mustStop(t, stop)
	if begun, over := strings.Count(log.String(), line), strings.Count(log.String(), well); begun != over {
		t.Errorf("log: got %d times %q, and %d times %q, want one each time", begun, line, over, well)
	}
}

// A broker that stops in an orderly way first gives its partitions away. Break it catches: a relay that shows what the
// broker said then for the whole outage, while connections are refused.
func TestStatusShowsTheNewestErrorOfABrokerThatStopped(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.c.ShutdownGrace = config.Duration(50 * time.Millisecond)
	r, stop := b.start()
	b.waitRole(r, relay.RoleActive)
	b.pg.Exec(t, many(1, 1, 1))
	b.waitRecorded(1)
	refused := make(chan struct{}, 1)
	b.broker.Cluster().ControlKey(int16(kmsg.Produce), func(request kmsg.Request) (kmsg.Response, error, bool) {
		b.broker.Cluster().KeepControl()
		asked := request.(*kmsg.ProduceRequest)
		answer := asked.ResponseKind().(*kmsg.ProduceResponse)
		for _, topic := range asked.Topics {
			told := kmsg.NewProduceResponseTopic()
			told.Topic, told.TopicID = topic.Topic, topic.TopicID
			for _, p := range topic.Partitions {
				one := kmsg.NewProduceResponseTopicPartition()
				one.Partition, one.ErrorCode, one.BaseOffset = p.Partition, notLeader, -1
				told.Partitions = append(told.Partitions, one)
			}
			answer.Topics = append(answer.Topics, told)
		}
		select {
		case refused <- struct{}{}:
		default:
		}
		return answer, nil, true
	})
	b.pg.Exec(t, many(2, 1, 1))
	<-refused
	b.broker.Close()
	b.waitReason(r, "broker stalled: ask for partitions and leaders")
	if text := strings.Join(r.Status().Reasons, " "); !strings.Contains(text, "refused") ||
		strings.Contains(text, "NOT_LEADER") {
		t.Errorf("reasons: got %q, want that connections are refused, and not NOT_LEADER_OR_FOLLOWER", text)
	}
	mustRunOut(t, stop)
}

// The broker has been away for a while, and the first event meets it. Break it catches: an outage that begins again
// with that event, so that the relay is ready for its first seconds.
func TestAnOutageIsAsOldAsItsFirstProof(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.c.ShutdownGrace = config.Duration(50 * time.Millisecond)
	r, stop := b.start()
	b.waitRole(r, relay.RoleActive)
	b.pg.Exec(t, many(1, 1, 1))
	b.waitRecorded(1)
	b.broker.Close()
	b.waitReason(r, "broker unreachable: ")
	b.pg.Exec(t, many(2, 1, 1))
	harness.Eventually(t, bedPatience, "the event has met the outage", func(context.Context) string {
		st := r.Status()
		if st.Ready {
			t.Fatalf("ready while the broker is away: %s", st.Broker)
		}
		if !strings.HasPrefix(st.Broker, "stalled: ") {
			return st.Broker
		}
		return ""
	})
	mustRunOut(t, stop)
}

const notLeader = 6 // NOT_LEADER_OR_FOLLOWER
