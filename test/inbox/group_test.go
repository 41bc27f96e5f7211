package inbox

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Two consumers share a group by mistake, and each handles some of the partitions only: both say so, and name the
// other. Several processes of one consumer are none. Seen to fail without the look at the group's offsets: both were
// ready, and each had half of the events.
func TestTwoConsumersInOneGroupAreNotReady(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	addrs, topic := topicOf(t, 3)
	log := &harness.Log{}
	of := func(name string) (*inbox.Consumer, func()) {
		pg := harness.Postgres(t)
		pg.Exec(t, effects)
		return start(t, newPool(t, pg.URL, 4), inbox.Config{
			Name: name, Group: "shared", Brokers: addrs, Topics: []string{topic}, Log: newLog(log),
		}, onOrder)
	}
	billing, _ := of("billing")
	second, _ := of("billing") // a process more of it
	ready(t, billing)
	ready(t, second)
	if strings.Contains(log.String(), "another consumer") {
		t.Errorf("the log is\n%s", log)
	}
	shipping, stop := of("shipping")
	troubled(t, billing, "shipping", "group shared", topic)
	troubled(t, shipping, "billing", "group shared", topic)
	if text := log.String(); !strings.Contains(text, "level=ERROR") || !strings.Contains(text, "consumer shipping") {
		t.Errorf("the log is\n%s", text)
	}
	stop()
	ready(t, billing)
}

// What is away is named within seconds, and named as what it is: a topic, or the brokers. The consumer goes on when it
// is there. Seen to fail without the look: for 45 s it was said to be not in the group yet.
func TestWhatIsAwayIsNamed(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	addrs, topic := topicOf(t, 1)
	pg := harness.Postgres(t)
	pg.Exec(t, effects)
	c, _ := start(t, newPool(t, pg.URL, 4), inbox.Config{
		Name: "early", Brokers: addrs, Topics: []string{topic, "outbox.event.later"}, Log: newLog(&harness.Log{}),
	}, onOrder)
	troubled(t, c, "outbox.event.later", "UNKNOWN_TOPIC_OR_PARTITION")
	client, err := kgo.NewClient(kgo.SeedBrokers(addrs...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	create(t, client, "outbox.event.later")
	ready(t, c)
	sendSome(t, addrs, "outbox.event.later", 0, 3)
	until(t, pg, "SELECT count(*) FROM effect", "3")

	nowhere, _ := start(t, newPool(t, pg.URL, 4), inbox.Config{
		Name: "nowhere", Brokers: []string{"127.0.0.1:1"}, Topics: []string{topic}, Log: newLog(&harness.Log{}),
	}, onOrder)
	troubled(t, nowhere, "127.0.0.1:1", topic)
	if st := nowhere.Status(); st.LagKnown || st.HeartbeatAge != 0 {
		t.Errorf("without brokers: got %+v, want neither a lag nor a heartbeat", st)
	}
}
