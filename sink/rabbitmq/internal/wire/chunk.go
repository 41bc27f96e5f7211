package wire

import (
	"context"
	"encoding/binary"
)

// Where a subscription begins.
const (
	FromFirst  = 1
	FromLast   = 2
	FromOffset = 4
	FromTime   = 5
)

// ahead is how many chunks the server may send before they are taken.
const ahead = 8

// Start is where a subscription begins; Value is an offset, or milliseconds since the Unix epoch.
type Start struct {
	Kind  uint16
	Value int64
}

// Chunk is a unit of a stream: messages that were written together.
type Chunk struct {
	First, Next int64 // offsets
	Time        int64 // milliseconds since the Unix epoch
	entries     []byte
}

// chunkOf takes the frame of a delivery apart.
func chunkOf(f frame) (c Chunk, err error) {
	r := fields{rest: f.body}
	r.number(1) // subscription
	r.number(1) // version
	r.number(1) // kind of chunk: readers get those of messages only
	r.number(2) // entries
	records := r.number(4)
	c.Time = int64(r.number(8))
	r.number(8) // epoch
	c.First = int64(r.number(8))
	c.Next = c.First + int64(records)
	r.number(4) // checksum
	size := r.number(4)
	r.number(4) // length of the trailer, which readers don't get
	r.number(4)
	c.entries = r.bytes(int(size))
	return c, r.err
}

// Each hands out the messages with their offsets. What several writers' clients packed together is skipped: it is not
// ours.
func (c Chunk) Each(do func(offset int64, message []byte) error) error {
	r := fields{rest: c.entries}
	for offset := c.First; offset < c.Next; {
		head := r.number(4)
		if head>>31 == 0 {
			message := r.bytes(int(head))
			if r.err != nil {
				return r.err
			}
			if err := do(offset, message); err != nil {
				return err
			}
			offset++
			continue
		}
		// The head is a byte, the number of messages in two, and the first byte of their length unpacked.
		offset += int64(head >> 8 & 0xffff)
		r.number(3)
		r.bytes(int(r.number(4)))
		if r.err != nil {
			return r.err
		}
	}
	return nil
}

// follow begins a subscription. Chunks that come before the server's answer go to take.
func (c *Conn) follow(stream string, from Start, credits uint16, take func(Chunk) error) error {
	c.question(subscribe)
	c.out = append(c.out, subscription)
	c.text(stream)
	c.short(from.Kind)
	if from.Kind == FromOffset || from.Kind == FromTime {
		c.out = binary.BigEndian.AppendUint64(c.out, uint64(from.Value))
	}
	c.short(credits)
	c.texts(nil)
	_, err := c.ask(delivered(take))
	return err
}

const subscription = 0 // the only one of a connection at a time

// unfollow ends the subscription.
func (c *Conn) unfollow() error {
	c.question(unsubscribe)
	c.out = append(c.out, subscription)
	_, err := c.ask(nil)
	return err
}

// delivered hands chunks on.
func delivered(take func(Chunk) error) func(frame) error {
	return func(f frame) error {
		if f.command != deliver {
			return nil
		}
		chunk, err := chunkOf(f)
		if err != nil {
			return err
		}
		return take(chunk)
	}
}

// Edge hands out the stream's chunk at FromFirst or FromLast; there is none in an empty stream. The server sends it
// before it answers the next question.
func (c *Conn) Edge(stream string, at uint16, take func(Chunk) error) error {
	if err := c.follow(stream, Start{Kind: at}, 1, take); err != nil {
		return err
	}
	c.question(metadata)
	c.out = binary.BigEndian.AppendUint32(c.out, 1)
	c.text(stream)
	if _, err := c.ask(delivered(take)); err != nil {
		return err
	}
	return c.unfollow()
}

// ReadUpTo hands out the stream's messages from the start to the one with that offset.
func (c *Conn) ReadUpTo(ctx context.Context, stream string, from Start, upTo int64,
	each func(offset int64, message []byte) error) error {
	done := false
	take := func(k Chunk) error {
		done = done || k.Next > upTo
		return k.Each(func(offset int64, message []byte) error {
			if from.Kind == FromOffset && offset < from.Value || offset > upTo {
				return nil
			}
			return each(offset, message)
		})
	}
	if err := c.follow(stream, from, ahead, take); err != nil {
		return err
	}
	hear := delivered(take)
	for !done {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		c.begin(credit)
		c.out = append(c.out, subscription)
		c.short(1)
		if err := c.Send(); err != nil {
			return err
		}
		f, err := c.read()
		if err == nil {
			err = hear(f)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
