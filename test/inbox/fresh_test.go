package inbox

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// A process is cut off from the group in a handler, for longer than its session, which is shorter than the default;
// another one has had the event's effect. Then its handler is told that it is not fresh, also when the wire is back.
// Seen to fail with a constant 45 s for the session.
func TestAHandlerWhoseSessionIsOverIsNotFresh(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	pg := harness.Postgres(t)
	pg.Exec(t, effects)
	broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.GroupMinSessionTimeout(100*time.Millisecond),
		kfake.SeedTopics(1, "order"))
	if err != nil {
		t.Fatal(err)
	}
	defer broker.Close()
	w := newWire()
	defer w.release()
	config := inbox.Config{Brokers: broker.ListenAddrs(), Topics: []string{"order"}, IdleTimeout: 300 * time.Millisecond,
		Client: []kgo.Opt{kgo.DisableFetchSessions(), kgo.SessionTimeout(700 * time.Millisecond),
			kgo.HeartbeatInterval(50 * time.Millisecond)}}
	first := config
	first.Client = append([]kgo.Opt{kgo.Dialer(w.dial)}, config.Client...)
	entered, goOn, fresh := make(chan bool, 10), make(chan struct{}), make(chan bool, 2)
	start(t, newPool(t, pg.URL, 4), first, func(c *inbox.Consumer) {
		inbox.On(c, "OrderPlaced", func(ctx context.Context, _ pgx.Tx, _ inbox.Event[payload]) error {
			entered <- inbox.Fresh(ctx)
			<-goOn
			fresh <- inbox.Fresh(ctx)
			w.release()
			timer := time.NewTimer(100 * time.Millisecond) // answers come that were sent before
			<-timer.C
			fresh <- inbox.Fresh(ctx)
			return nil
		})
	})
	produce(t, broker.ListenAddrs(), event("order", 0, 1))
	if !<-entered {
		t.Error("fresh at the beginning: got false, want true")
	}
	w.hold()
	start(t, newPool(t, pg.URL, 4), config, onOrder)
	until(t, pg, "SELECT count(*) FROM effect", "1")
	close(goOn)
	for _, when := range []string{"while it is cut off", "when it is back"} {
		if <-fresh {
			t.Errorf("fresh %s: got true, want false", when)
		}
	}
}
