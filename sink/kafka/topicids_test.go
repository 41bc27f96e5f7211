package kafka

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Break caught: a topic that was deleted and created again taken for the former one, or one that is as it was for
// another. On kfake, which speaks the version of its time, and on a real broker.
func TestTopicCreatedAgainHasAnotherID(t *testing.T) {
	const topic = "created.again"
	for name, brokers := range map[string][]string{
		"kfake": newFake(t).ListenAddrs(), "Metadata v10": newFake(t, kfake.MaxVersions(kversion.V2_8_0())).ListenAddrs(),
		"Kafka": harness.Kafka(t).Addrs,
	} {
		t.Run(name, func(t *testing.T) {
			ctx, d := testContext(t), newDriver(t, brokers, nil)
			create := func() {
				t.Helper()
				if _, err := newAdmin(t, brokers).CreateTopic(ctx, 2, 1, nil, topic); err != nil {
					t.Fatal(err)
				}
			}
			create()
			t.Cleanup(func() { harness.DeleteTopic(t, brokers, topic) })
			first := oneID(ctx, t, d, topic)
			if again := oneID(ctx, t, d, topic); again != first {
				t.Errorf("id of a topic that is as it was: got %s, want %s", again, first)
			}
			harness.DeleteTopic(t, brokers, topic)
			create()
			if again := oneID(ctx, t, d, topic); again == first {
				t.Errorf("id of another topic: got %s again", again)
			}
			if there, err := newAdmin(t, brokers).ListTopics(ctx); err != nil || there.Has("absent") {
				t.Errorf("topics: got %v and %v, want none that was only asked for", there.Names(), err)
			}
		})
	}
}

// oneID is the topic's id; one that is not there has none.
func oneID(ctx context.Context, t *testing.T, d *Driver, topic string) string {
	t.Helper()
	var id string
	harness.Eventually(t, 30*time.Second, "an id", func(context.Context) string {
		ids, err := d.TopicIDs(ctx, []string{"absent", topic})
		if id = ids[topic]; err != nil || len(ids) != 1 || len(id) != 32 {
			return fmt.Sprintf("got %v and %v, want one of 16 bytes, of %s", ids, err, topic)
		}
		return ""
	})
	return id
}

// Break caught: an error, or a connection that a broker closes, where brokers have no ids.
func TestOldBrokersHaveNoTopicIDs(t *testing.T) {
	d := newDriver(t, newFake(t, kfake.MaxVersions(kversion.V2_7_0())).ListenAddrs(), nil)
	ids, err := d.TopicIDs(testContext(t), []string{"t"})
	if err != nil || len(ids) != 0 {
		t.Errorf("ids of an old broker: got %v and %v, want none", ids, err)
	}
}
