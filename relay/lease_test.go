package relay_test

import (
	"context"
	"sync"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/replication"
)

// muted is a Postgres that ends the first stream when it is told to, and whose relay does not learn it from the
// connection: as when the reason stands behind what is not read, and a proxy takes what is written.
type muted struct {
	relay.RealPostgres
	end  chan struct{}
	once sync.Once
}

func (m *muted) OpenStream(ctx context.Context, c replication.Config) (relay.Stream, error) {
	s, err := replication.Open(ctx, c)
	if err != nil {
		return nil, err
	}
	var stream relay.Stream = s
	m.once.Do(func() { stream = &mutedStream{Session: s, end: m.end} })
	return stream, nil
}

type mutedStream struct {
	*replication.Session
	end chan struct{}
}

func (s *mutedStream) Batches() <-chan *replication.Batch { return nil }

func (s *mutedStream) Run(ctx context.Context, _ func() outbox.LSN) error {
	select {
	case <-s.end:
		s.Close()
		<-ctx.Done()
	case <-ctx.Done():
		s.Close()
	}
	return ctx.Err()
}

// The server ends the stream, and nothing on the connection tells. Break it catches: a relay that goes on with a
// session whose slot is not its own, until its proof of the lease is old, and then stands still forever. Seen to fail
// with the answer to the look at the slot taken for a proof or for nothing.
func TestStreamThatEndedUnreadIsNoticedBySQL(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	m := &muted{end: make(chan struct{})}
	b.postgres = m
	r, stop := b.start()
	b.waitRole(r, relay.RoleActive)
	b.pg.Exec(t, many(1, 5, 3))
	close(m.end)
	b.waitRecorded(5)
	b.wantNumbers("outbox.event.order", 5)
	mustStop(t, stop)
}
