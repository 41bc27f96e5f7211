package nats

import (
	"context"
	"fmt"
	"testing"
	"time"

	client "github.com/nats-io/nats.go"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Breaks it catches: a topic that is read from a server whose copy lacks the end, or has what the leader has lost; a
// reader that stays where the client put it when it replaced a consumer, or that gives messages twice then.
func TestReadersReadTheLeadersCopy(t *testing.T) {
	const readers, messages = 12, 40
	servers := harness.NATSCluster(t)
	nc, err := client.Connect(servers[0].URL+","+servers[1].URL+","+servers[2].URL, client.MaxReconnects(-1))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := nc.JetStream(client.MaxWait(20 * time.Second))
	if err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, time.Minute, "the stream is made", func(context.Context) string {
		if _, err := js.AddStream(&client.StreamConfig{Name: "s", Subjects: []string{"s"}, Replicas: 3}); err != nil {
			return err.Error()
		}
		return ""
	})
	for i := range messages {
		if _, err := js.Publish("s", fmt.Append(nil, i)); err != nil {
			t.Fatal(err)
		}
	}
	var r *reader
	for range readers {
		if r, _, err = newReader(t.Context(), nc, "s", "s", client.StartSequence(1),
			client.IdleHeartbeat(500*time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		defer r.close()
		wantAtLeader(t, js, r)
	}
	for i := range messages {
		if i == messages/2 {
			r.consumer = "the client's former one"
		}
		m, _, err := r.next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if string(m.Data) != fmt.Sprint(i) {
			t.Fatalf("got message %s, want %d", m.Data, i)
		}
	}
	wantAtLeader(t, js, r)
}

func wantAtLeader(t *testing.T, js client.JetStreamContext, r *reader) {
	t.Helper()
	stream, err := js.StreamInfo("s")
	if err != nil {
		t.Fatal(err)
	}
	info, err := r.messages.ConsumerInfo()
	if err != nil {
		t.Fatal(err)
	}
	if info.Cluster == nil || info.Cluster.Leader != stream.Cluster.Leader {
		t.Errorf("consumer at %+v, want it at the leader, %s", info.Cluster, stream.Cluster.Leader)
	}
}
