package nats

import (
	"context"
	"encoding/base64"
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
	from = max(from, 1)
	state := info.State
	if from > state.LastSeq+1 {
		from = 1 // the stream was created again, and the sequence is one of the stream before
	}
	q.Lost(min(max(state.FirstSeq-from, 0)+state.Deleted, state.LastSeq-from+1))
	switch {
	case begins && from > upTo:
	case info.consumed():
		err = getSubject(ctx, nc, name, q.Topic, from, upTo, func(m *storedMessage, headers client.Header) error {
			return each(tailRecord(q, m.Seq, headers))
		})
		if errors.Is(err, errUnread) {
			err = passing(err)
		}
	default:
		start := client.StartSequence(uint64(from))
		if !begins && !q.Since.IsZero() {
			start = client.StartTime(q.Since)
		}
		err = readSubject(ctx, nc, name, q, start, upTo, each)
	}
	if err != nil {
		return err
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
	messages, empty, err := newReader(ctx, nc, stream, q.Topic, start, client.HeadersOnly(),
		client.IdleHeartbeat(answerPatience/2))
	if err != nil {
		return passing(fmt.Errorf("read subject %s back: %w", q.Topic, err))
	}
	defer messages.close()
	if empty {
		return nil
	}
	for {
		m, about, err := messages.next(ctx)
		if err != nil {
			return passing(fmt.Errorf("read subject %s back: %w", q.Topic, err))
		}
		rec := tailRecord(q, int64(about.Sequence.Stream), m.Header)
		if err := each(rec); err != nil {
			return err
		}
		if rec.Offset >= upTo {
			return nil
		}
	}
}

var errUnread = errors.New("the stream's leader cannot be asked")

// getSubject hands out the subject's messages of a stream that deletes what was consumed: a work queue refuses a second
// consumer, and a stream of interest would keep messages for it. The leader is asked for one message after the other.
func getSubject(ctx context.Context, nc *client.Conn, stream, subject string, from, upTo int64,
	each func(*storedMessage, client.Header) error) error {
	for from <= upTo {
		var answer struct {
			Message storedMessage `json:"message"`
		}
		request := struct {
			Seq  int64  `json:"seq"`
			Next string `json:"next_by_subj"`
		}{from, subject}
		err := question(ctx, nc, "STREAM.MSG.GET."+stream, request, &answer)
		if isCode(err, codeMessageNotFound) {
			return nil // the last one was consumed in the meantime
		}
		if err != nil {
			return fmt.Errorf("read subject %s at sequence %d: %w: %w", subject, from, errUnread, err)
		}
		m := &answer.Message
		if m.Seq < from {
			return fmt.Errorf("read subject %s: asked for sequence %d and later, got %d", subject, from, m.Seq)
		}
		if m.Seq > upTo {
			return nil
		}
		headers, err := headersOf(m.Headers)
		if err != nil {
			headers = nil // not one of ours
		}
		if err := each(m, headers); err != nil {
			return err
		}
		from = m.Seq + 1
	}
	return nil
}

func headersOf(block []byte) (client.Header, error) {
	if len(block) == 0 {
		return nil, nil
	}
	return client.DecodeHeadersMsg(block)
}

func tailRecord(q sink.TailQuery, seq int64, headers client.Header) sink.TailRecord {
	rec := sink.TailRecord{Offset: seq, Key: keyOf(headers)}
	for i, header := range q.Headers {
		if values := headers[header]; header != "" && len(values) > 0 {
			rec.Headers[i] = []byte(values[len(values)-1])
		}
	}
	return rec
}

// keyOf is the key that [message] has put into the headers, nil if there is none.
func keyOf(headers client.Header) []byte {
	if key, found := headers[keyHeader]; found {
		return []byte(key[len(key)-1])
	}
	if key := headers.Get(keyBase64Header); key != "" {
		plain, err := base64.StdEncoding.DecodeString(key)
		if err != nil {
			return nil // another writer's
		}
		return plain
	}
	return nil
}

// passing reports that the same question may be answered in a moment, unless this was an answer about the stream. That
// no responders is not one: a leader may be elected.
func passing(err error) error {
	if sink.TroubleOf(err, sink.ClusterTrouble) == sink.TopicTrouble && !isCode(err, codeNoResponders) {
		return err
	}
	return errors.Join(sink.ErrPassing, err)
}
