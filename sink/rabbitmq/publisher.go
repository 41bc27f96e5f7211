package rabbitmq

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/rabbitmq/internal/wire"
)

const (
	// epochShift leaves publishing ids for 10^12 records of an epoch, and 8 million epochs.
	epochShift = 40
	// longestName is the longest name of a publisher, in bytes.
	longestName = 255
	// lookPause is the least time between two looks for an offset.
	lookPause = time.Second
)

// publisher is one stream and the connection that publishes to it. What has no other owner belongs to who took the
// turn.
//
// Invariants:
//
//   - P1: under one name, an id is used for one message only, and ids grow in the order in which they are sent. So what
//     comes again under its id is dropped by the server exactly if it is there.
//   - P2: the ids of an epoch are greater than those of each epoch before. So the server drops what a relay sends late,
//     once its successor has published.
//   - P3: what is confirmed is there only if the name's last id is ours when that is asked afterwards: the server
//     confirms what it drops, too.
type publisher struct {
	driver *StreamDriver
	stream string
	turn   chan struct{} // holds a token while no one publishes

	conn   *wire.Conn
	name   string // under which ids count
	source string // from which the name is made
	epoch  uint64
	tried  bool   // something may have been sent under the name
	high   uint64 // the last id that was given to a message
	stored uint64 // the last id that the stream is known to have
	looked time.Time
	mark   []byte
}

// ids is Batch.State: the publishing ids of the batch's records. first is 0 before there are any.
type ids struct {
	name  string
	first uint64
	count int
	tried bool // something may have been sent
}

func (s *ids) last() uint64 { return s.first + uint64(s.count) - 1 }

// produce sends what the stream does not have of the batch.
func (p *publisher) produce(ctx context.Context, b *sink.Batch) sink.Outcome {
	s, _ := b.State.(*ids)
	if s == nil {
		s = &ids{}
	}
	select {
	case <-p.turn:
	case <-ctx.Done():
		return failed(s, 0, context.Cause(ctx))
	}
	defer func() { p.turn <- struct{}{} }()
	if s.first != 0 {
		s.first += uint64(s.count - len(b.Records)) // without the front that the engine was told of
	}
	s.count = len(b.Records)
	if err := p.open(ctx, b.Records[0]); err != nil {
		return failed(s, 0, err)
	}
	if b.State == nil {
		if o := p.judge(b); o.Verdict == sink.Refused {
			return o
		}
		b.State = s
	}
	p.assign(s)
	front := 0
	if p.stored >= s.first {
		front = int(min(p.stored-s.first+1, uint64(s.count)))
	}
	stop := context.AfterFunc(ctx, func(c *wire.Conn) func() { return func() { _ = c.Close() } }(p.conn))
	defer stop()
	if err := p.send(s, b.Records, front); err != nil {
		p.drop(err)
		return failed(s, front, err)
	}
	p.driver.heard(nil)
	o := sink.Outcome{Verdict: sink.Accepted, FirstOffset: -1}
	if time.Since(p.looked) >= lookPause {
		o.Offsets = p.look(b.Records)
	}
	return o
}

// send sends the records behind the front, and asks whether the stream has them when they are confirmed (P3).
func (p *publisher) send(s *ids, records []*sink.Record, front int) error {
	if front == s.count {
		return nil
	}
	p.tried, s.tried = true, true
	for next := front; next < s.count; {
		n := p.fill(records[next:], s.first+uint64(next))
		if err := p.conn.Send(); err != nil {
			return err
		}
		if err := p.conn.Confirms(s.first+uint64(next), n); err != nil {
			return err
		}
		next += n
	}
	last, err := p.conn.Sequence(p.name, p.stream)
	switch {
	case err != nil:
		return err
	case last > p.high:
		return &foreign{p.name}
	case last < s.last():
		return fmt.Errorf("stream %s confirmed publishing id %d of %s and says then that its last is %d", p.stream, s.last(),
			p.name, last)
	}
	p.stored = last
	return nil
}

// failed is the outcome of a batch that must come again.
func failed(s *ids, front int, err error) sink.Outcome {
	o := sink.Outcome{
		Verdict: sink.NotWritten, Err: err, Trouble: sink.TroubleOf(err, sink.ClusterTrouble), FirstOffset: -1,
		Written: front, Pause: true,
	}
	if s.tried {
		o.Verdict = sink.Unknown
	}
	return o
}

// judge looks at every record before the first is sent.
func (p *publisher) judge(b *sink.Batch) (o sink.Outcome) {
	for i, r := range b.Records {
		if reason := p.driver.config.judge(r, p.conn.FrameLimit); reason != nil {
			o.Verdict, o.Unsent = sink.Refused, true
			o.Guilty, o.Reasons = append(o.Guilty, i), append(o.Reasons, reason)
		}
	}
	return o
}

// assign gives the batch's records ids, unless they have some and nothing was sent under later ones (P1).
func (p *publisher) assign(s *ids) {
	if s.first != 0 && s.name == p.name && s.last() == p.high {
		return
	}
	if s.tried {
		p.driver.duplicates.Add(uint64(s.count))
	}
	s.name, s.first, s.tried = p.name, p.high+1, false
	p.high = s.last()
}

// fill makes a frame of as many records as there is room for.
func (p *publisher) fill(records []*sink.Record, id uint64) (n int) {
	p.conn.Publish()
	for n < len(records) {
		r := records[n]
		message := func(b []byte) []byte { return p.driver.config.appendMessage(b, r) }
		if !p.conn.Add(id+uint64(n), message) {
			break
		}
		n++
	}
	return n
}

// open makes the connection, if there is none, under the name that the record's epoch asks for.
func (p *publisher) open(ctx context.Context, r *sink.Record) error {
	source, epoch := origin(r)
	if p.name == "" || source != p.source || epoch > p.epoch {
		p.drop(nil)
		p.source, p.epoch = source, epoch
		p.name = p.driver.nameOf(source)
		p.high, p.stored, p.tried = max(p.high, epoch<<epochShift), 0, false
	}
	if p.conn != nil {
		return nil
	}
	c, err := p.driver.dial(ctx)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	if err = p.declare(c); err != nil {
		_ = c.Close()
		p.driver.heard(err)
		return fmt.Errorf("stream %s: %w", p.stream, p.driver.config.explained(err, p.stream))
	}
	p.conn = c
	return nil
}

// declare makes the connection one that publishes, and learns what the stream has under the name.
func (p *publisher) declare(c *wire.Conn) error {
	err := c.Declare(p.name, p.stream)
	if errors.Is(err, wire.NoStream) && p.driver.config.MissingStreams.Create {
		if err = c.Create(p.stream, p.driver.config.MissingStreams.arguments()); err != nil {
			return fmt.Errorf("create it: %w", err)
		}
		if hook := p.driver.config.Hooks.StreamCreated; hook != nil {
			hook(p.stream)
		}
		err = c.Declare(p.name, p.stream)
	}
	if err != nil {
		return err
	}
	last, err := c.Sequence(p.name, p.stream)
	switch {
	case err != nil:
		return err
	case last > p.high && p.stored == 0 && !p.tried:
		// A state table that was restored, or lost, counts epochs again that were used: another name has no ids yet.
		p.name = p.driver.nameOf("")
		return p.declare(c)
	case last > p.high:
		return &foreign{p.name}
	case last < p.stored:
		p.driver.wentBack(p.stream, p.stored-last)
	}
	p.stored = last
	return nil
}

// look finds the offset of the last record at the stream's end, if no other writer has hidden it: where to begin to
// read the stream back is known by that. What goes wrong here has nothing to do with the batch, which is written.
func (p *publisher) look(records []*sink.Record) (offsets []int64) {
	p.looked = time.Now()
	p.mark = p.driver.config.appendMessage(p.mark[:0], records[len(records)-1])
	found := int64(-1)
	err := p.conn.Edge(p.stream, wire.FromLast, func(c wire.Chunk) error {
		return c.Each(func(offset int64, message []byte) error {
			if bytes.Equal(message, p.mark) {
				found = offset
			}
			return nil
		})
	})
	if err != nil {
		p.drop(err)
		return nil
	}
	if found < 0 {
		return nil
	}
	offsets = make([]int64, len(records))
	for i := range offsets {
		offsets[i] = -1
	}
	offsets[len(offsets)-1] = found
	return offsets
}

// drop gives the connection up.
func (p *publisher) drop(err error) {
	if p.conn != nil {
		_ = p.conn.Close()
		p.conn = nil
	}
	if err != nil {
		p.driver.heard(err)
	}
}

// origin is where the record says that it comes from.
func origin(r *sink.Record) (source string, epoch uint64) {
	for name, value := range r.Headers.All() {
		switch name {
		case sourceHeader:
			source = string(value)
		case epochHeader:
			epoch, _ = strconv.ParseUint(string(value), 10, 64-epochShift-1)
		}
	}
	if source == "" || epoch == 0 {
		return "", 0
	}
	return source, epoch
}

// nameOf is a publisher's name: the source's, by which a relay's successor goes on, or one that no one has used.
func (d *StreamDriver) nameOf(source string) string {
	if source == "" {
		source = rand.Text()
	}
	name := source + "/" + d.config.Name
	return name[:min(len(name), longestName)]
}

// foreign reports that another process publishes under our name with later ids: the server would drop what we send.
type foreign struct{ name string }

func (f *foreign) Error() string {
	return "another relay with a later epoch publishes under the name " + f.name
}

// Trouble implements [sink.Troubled].
func (*foreign) Trouble() sink.Trouble { return sink.PartitionTrouble }
