package nats

import (
	"context"
	"errors"
	"fmt"

	client "github.com/nats-io/nats.go"

	"github.com/cdc-relay/cdc-relay/sink"
)

// Tail implements [sink.Tailer]. It leaves the stream's log at the end up to which it has read, which the first append
// expects.
func (d *Driver) Tail(ctx context.Context, q sink.TailQuery, each func(sink.TailRecord) error) error {
	nc, err := d.connection(ctx)
	if err != nil {
		return errors.Join(sink.ErrUnreachable, err)
	}
	name, err := streamOf(ctx, nc, q.Topic)
	if err != nil {
		return passing(err)
	}
	if name == "" {
		return nil
	}
	info, err := askStream(ctx, nc, name)
	if err != nil {
		return passing(err)
	}
	upTo, err := lastOf(ctx, nc, name, q.Topic)
	if err != nil {
		return passing(err)
	}
	from, begins := q.From[0]
	if !begins || from <= upTo {
		start := client.StartSequence(uint64(max(from, 1)))
		if !begins && !q.Since.IsZero() {
			start = client.StartTime(q.Since)
		}
		if err := readSubject(ctx, nc, name, q, start, upTo, each); err != nil {
			return err
		}
	}
	d.mu.Lock()
	s := d.streamNamed(name)
	d.mu.Unlock()
	if err := s.log.Start(ctx, info.State.LastSeq); err != nil {
		return passing(err)
	}
	return nil
}

// Defer implements [sink.Deferrer].
func (d *Driver) Defer(ctx context.Context, q sink.TailQuery) bool {
	from, begins := q.From[0]
	if !begins {
		return false
	}
	end := max(from, 1) - 1
	d.mu.Lock()
	var s *stream
	if t := d.topics[q.Topic]; t != nil {
		s = t.stream
	}
	if s == nil {
		d.deferred[q.Topic] = end // see resume
	}
	d.mu.Unlock()
	return s == nil || s.log.Defer(ctx, end) == nil
}

// resume does what was deferred while the topic's stream was not known.
func (d *Driver) resume(ctx context.Context, topic, stream string) error {
	d.mu.Lock()
	end, deferred := d.deferred[topic]
	s := d.streamNamed(stream)
	d.mu.Unlock()
	if !deferred {
		return nil
	}
	if err := s.log.Defer(ctx, end); err != nil {
		return err
	}
	d.mu.Lock()
	delete(d.deferred, topic)
	d.mu.Unlock()
	return nil
}

// lastOf is the sequence of the subject's last message, 0 if there is none.
func lastOf(ctx context.Context, nc *client.Conn, stream, subject string) (int64, error) {
	var answer struct {
		Message storedMessage `json:"message"`
	}
	request := struct {
		LastBySubject string `json:"last_by_subj"`
	}{subject}
	err := question(ctx, nc, "STREAM.MSG.GET."+stream, request, &answer)
	if isCode(err, codeMessageNotFound) {
		return 0, nil
	}
	return answer.Message.Seq, err
}

// readSubject hands out the subject's messages up to the one with that sequence.
func readSubject(ctx context.Context, nc *client.Conn, stream string, q sink.TailQuery, start client.SubOpt, upTo int64,
	each func(sink.TailRecord) error) error {
	if upTo == 0 {
		return nil
	}
	js, err := nc.JetStream(client.MaxWait(answerPatience))
	if err != nil {
		return fmt.Errorf("read subject %s back: %w", q.Topic, err)
	}
	messages, err := js.SubscribeSync(q.Topic, client.BindStream(stream), client.OrderedConsumer(), client.HeadersOnly(),
		client.IdleHeartbeat(answerPatience/2), start)
	if err != nil {
		return passing(fmt.Errorf("read subject %s back: %w", q.Topic, unanswered(nc, api+"CONSUMER.", err)))
	}
	defer func() { _ = messages.Unsubscribe() }()
	info, err := messages.ConsumerInfo()
	if err != nil {
		return passing(fmt.Errorf("read subject %s back: %w", q.Topic, err))
	}
	if info.NumPending == 0 && info.Delivered.Stream == 0 {
		return nil // nothing from the start on
	}
	for {
		m, err := messages.NextMsgWithContext(ctx)
		if err != nil {
			return passing(fmt.Errorf("read subject %s back: %w", q.Topic, err))
		}
		about, err := m.Metadata()
		if err != nil {
			return fmt.Errorf("read subject %s back: %w", q.Topic, err)
		}
		rec := sink.TailRecord{Offset: int64(about.Sequence.Stream)}
		for i, header := range q.Headers {
			if values := m.Header[header]; header != "" && len(values) > 0 {
				rec.Headers[i] = []byte(values[len(values)-1])
			}
		}
		if err := each(rec); err != nil {
			return err
		}
		if rec.Offset >= upTo {
			return nil
		}
	}
}

// passing says that the same question may be answered in a moment.
func passing(err error) error { return errors.Join(sink.ErrPassing, err) }
