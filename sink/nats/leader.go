package nats

import (
	"context"
	"errors"
	"fmt"

	client "github.com/nats-io/nats.go"
)

// leaderTries is how many consumers are made before the leader counts as out of reach. JetStream places a
// consumer of one replica on any server of the stream (nats-server, jetstream_cluster.go, createGroupForConsumer): of
// five servers, on the leader each fifth time.
const leaderTries = 60

// errNoLeader is a passing trouble.
var errNoLeader = errors.New("no consumer came to be at the stream's leader")

// reader reads the messages of a subject in order from the copy of the stream's leader. Another server's copy may lack
// the end. After a crash of all servers it may also have messages that the leader lacks, and lose them a moment later.
type reader struct {
	nc              *client.Conn
	js              client.JetStreamContext
	stream, subject string
	opts            []client.SubOpt

	messages *client.Subscription
	consumer string // the server's name of it
	last     uint64 // sequence of the last message
}

// newReader begins at start. Without a message from there on it is empty.
func newReader(ctx context.Context, nc *client.Conn, stream, subject string, start client.SubOpt,
	opts ...client.SubOpt) (r *reader, empty bool, err error) {
	js, err := nc.JetStream(client.MaxWait(answerPatience))
	if err != nil {
		return nil, false, err
	}
	r = &reader{nc: nc, js: js, stream: stream, subject: subject, opts: opts}
	info, err := r.open(ctx, start)
	if err != nil {
		return nil, false, err
	}
	return r, info.NumPending == 0 && info.Delivered.Stream == 0, nil
}

// open makes a consumer at the leader.
func (r *reader) open(ctx context.Context, start client.SubOpt) (*client.ConsumerInfo, error) {
	opts := append([]client.SubOpt{client.BindStream(r.stream), client.OrderedConsumer(), start}, r.opts...)
	for range leaderTries {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		leader, err := askStream(ctx, r.nc, r.stream)
		if err != nil {
			return nil, err
		}
		messages, err := r.js.SubscribeSync(r.subject, opts...)
		if err != nil {
			return nil, unanswered(r.nc, api+"CONSUMER.", err)
		}
		info, err := messages.ConsumerInfo()
		if err != nil {
			_ = messages.Unsubscribe()
			return nil, unanswered(r.nc, api+"CONSUMER.", err)
		}
		if leader.Cluster == nil || info.Cluster == nil || info.Cluster.Leader == leader.Cluster.Leader {
			r.messages, r.consumer = messages, info.Name
			return info, nil
		}
		_ = messages.Unsubscribe()
	}
	return nil, fmt.Errorf("%w in %d attempts", errNoLeader, leaderTries)
}

// next waits for the next message. The client replaces a consumer that is silent or has a gap: another one
// is made then, at the leader.
func (r *reader) next(ctx context.Context) (*client.Msg, *client.MsgMetadata, error) {
	for {
		m, err := r.messages.NextMsgWithContext(ctx)
		if err != nil {
			return nil, nil, errors.Join(err, context.Cause(ctx))
		}
		about, err := m.Metadata()
		if err != nil {
			return nil, nil, err
		}
		if about.Consumer == r.consumer {
			r.last = about.Sequence.Stream
			return m, about, nil
		}
		r.close()
		if _, err := r.open(ctx, client.StartSequence(r.last+1)); err != nil {
			return nil, nil, err
		}
	}
}

func (r *reader) close() { _ = r.messages.Unsubscribe() }
