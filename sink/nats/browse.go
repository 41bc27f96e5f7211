package nats

import (
	"context"
	"fmt"

	client "github.com/nats-io/nats.go"

	"github.com/cdc-relay/cdc-relay/sink"
)

var _ sink.Browser = (*Driver)(nil)

// browsePatience is how often RequestTimeout may pass without a message.
const browsePatience = 2

// Extent implements [sink.Browser].
func (d *Driver) Extent(ctx context.Context, topic string) (e sink.Extent, err error) {
	ctx, cancel := context.WithTimeout(ctx, d.config.RequestTimeout)
	defer cancel()
	nc, err := d.connection(ctx)
	if err != nil {
		return e, err
	}
	name, err := streamOf(ctx, nc, topic)
	if err != nil || name == "" {
		return e, err
	}
	info, err := askStream(ctx, nc, name)
	if err != nil {
		return e, err
	}
	last, err := lastOf(ctx, nc, name, topic)
	if err != nil {
		return e, err
	}
	e = sink.Extent{Exists: true, First: info.State.FirstSeq, Next: last + 1}
	switch c := info.Config; {
	case info.consumed():
		e.Thins, e.Note = true, fmt.Sprintf("stream %s has the retention %s: missing messages are counted as "+
			"consumed", name, c.Retention)
	case c.MaxPerSubject > 0:
		e.Thins, e.Note = true, fmt.Sprintf("stream %s keeps %d messages of a subject: missing messages are counted as "+
			"removed by that", name, c.MaxPerSubject)
	}
	return e, nil
}

// Browse implements [sink.Browser].
func (d *Driver) Browse(ctx context.Context, topic string, from, before int64, each func(sink.Stored) error) error {
	nc, err := d.connection(ctx)
	if err != nil {
		return err
	}
	name, err := streamOf(ctx, nc, topic)
	if err != nil {
		return err
	}
	last, err := lastOf(ctx, nc, name, topic)
	if err != nil {
		return err
	}
	if last = min(last, before-1); from > last {
		return nil
	}
	info, err := askStream(ctx, nc, name)
	if err != nil {
		return err
	}
	if info.consumed() {
		return getSubject(ctx, nc, name, topic, max(from, 1), last, func(m *storedMessage, headers client.Header) error {
			return each(stored(&client.Msg{Subject: m.Subject, Header: headers, Data: m.Data}, m.Seq))
		})
	}
	messages, _, err := newReader(ctx, nc, name, topic, client.StartSequence(uint64(max(from, 1))))
	if err != nil {
		return fmt.Errorf("read subject %s: %w", topic, err)
	}
	defer messages.close()
	for at := from; at <= last; {
		m, about, err := d.nextOf(ctx, messages)
		if err != nil {
			return fmt.Errorf("read subject %s behind sequence %d: %w", topic, at-1, err)
		}
		if at = int64(about.Sequence.Stream) + 1; at > before { // the last ones were deleted in the meantime
			return nil
		}
		if err := each(stored(m, at-1)); err != nil {
			return err
		}
		if about.NumPending == 0 {
			return nil
		}
	}
	return nil
}

// nextOf waits for a message, for as long as the servers may take.
func (d *Driver) nextOf(ctx context.Context, messages *reader) (*client.Msg, *client.MsgMetadata, error) {
	bounded, cancel := context.WithTimeout(ctx, browsePatience*d.config.RequestTimeout)
	defer cancel()
	return messages.next(bounded)
}

// stored converts a message of [message] back to its record.
func stored(m *client.Msg, seq int64) sink.Stored {
	s := sink.Stored{Offset: seq, Value: m.Data}
	if s.Value == nil {
		s.Value = []byte{}
	}
	if m.Header.Get(tombstoneHeader) == "true" {
		s.Value = nil
	}
	s.Key = keyOf(m.Header)
	s.Headers = func(yield func(string, []byte) bool) {
		for name, values := range m.Header {
			for _, value := range values {
				if !yield(name, []byte(value)) {
					return
				}
			}
		}
	}
	return s
}
