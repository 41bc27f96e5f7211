package simulator

import (
	"bytes"
	"encoding/binary"
	"maps"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/sink"
)

// queueChannel is a channel of a connection. Guarded by world.mu.
type queueChannel struct {
	conn     *queueConn
	number   uint16
	exchange string
	closed   bool
	mute     bool // the broker says nothing more

	arriving *arriving // a message that is not complete
	tags     uint64    // of messages so far
	decided  uint64    // up to this one it is known what becomes of them
	acks     []uint64  // confirms that are not on their way yet
	// wave is the messages since the last moment at which all were confirmed: their sender may give all of them up.
	wave []sentRow
}

// sentRow is a row whose message was sent in that take-over of its sender's.
type sentRow struct {
	row    *row
	serial int
}

type arriving struct {
	raw     [][]byte // payloads of the frames of header and body
	routing string
	left    uint64 // bytes of the body that are missing
	headers map[string]string
	body    []byte
}

// giveUp lets the wave be sent again, but for what its sender has recorded. Called with mu held.
func (ch *queueChannel) giveUp() {
	for _, sent := range ch.wave {
		if sent.row.recorder != ch.conn.p {
			ch.conn.w.unheard(sent.row, sent.serial)
		}
	}
	ch.wave = nil
}

// take reads the frames that are complete. Called with mu held.
func (c *queueConn) take(b []byte) {
	c.in = append(c.in, b...)
	if bytes.HasPrefix(c.in, []byte("AMQP")) {
		c.in = c.in[protocolHead:]
		start := connectionStart.begin().octet(0).octet(9).long(0).longText("PLAIN").longText("en_US")
		c.say(frame(frameMethod, 0, start))
	}
	for len(c.in) >= frameHead {
		size := int(binary.BigEndian.Uint32(c.in[3:])) + frameHead + 1
		if len(c.in) < size {
			return
		}
		kind, channel := c.in[0], binary.BigEndian.Uint16(c.in[1:])
		payload := slices.Clone(c.in[frameHead : size-1])
		c.in = c.in[size:]
		c.receive(kind, channel, payload)
	}
}

// receive takes a frame. What is sent ahead of the broker's answer is on its way for a while.
func (c *queueConn) receive(kind byte, channel uint16, payload cursor) {
	ch := c.channels[channel]
	switch kind {
	case frameHeartbeat:
		c.inbound.in(0, func() { c.say(frame(frameHeartbeat, 0, nil)) })
	case frameMethod:
		m := method{payload.short(), payload.short()}
		if m == basicPublish {
			payload.short()
			payload.shortText()
			ch.arriving = &arriving{routing: payload.shortText()}
			return
		}
		c.inbound.in(c.roll.pause(0, time.Millisecond), func() { c.command(channel, m, payload) })
	case frameHeader:
		a := ch.arriving
		a.raw = append(a.raw, payload)
		a.left, a.headers = contentHead(payload)
		ch.complete()
	case frameBody:
		a := ch.arriving
		a.raw = append(a.raw, payload)
		a.body, a.left = append(a.body, payload...), a.left-uint64(len(payload))
		ch.complete()
	}
}

// say sends a frame to the process. Called with mu held.
func (c *queueConn) say(frames ...[]byte) {
	c.back.in(c.roll.pause(0, one(c.roll, 0, time.Millisecond, 20*time.Millisecond)), func() {
		if !c.broken {
			c.out = append(c.out, bytes.Join(frames, nil)...)
			c.tell()
		}
	})
}

// command does what is no message. Called with mu held.
func (c *queueConn) command(channel uint16, m method, args cursor) {
	if c.broken {
		return
	}
	answer := func(b builder) { c.say(frame(frameMethod, channel, b)) }
	switch m {
	case connectionStartOk:
		answer(connectionTune.begin().short(100).long(1 << 17).short(uint16(queueTimeout / time.Second)))
	case connectionTuneOk:
	case connectionOpen:
		answer(connectionOpenOk.begin().shortText(""))
	case connectionClose:
		answer(connectionCloseOk.begin())
	case channelOpen:
		c.channels[channel] = &queueChannel{conn: c, number: channel}
		answer(channelOpenOk.begin().longText(""))
	case channelClose:
		c.w.note("p%d closes channel %d to %s", c.p.number, channel, c.channels[channel].exchange)
		c.channels[channel].giveUp()
		c.channels[channel].closed = true
		answer(channelCloseOk.begin())
	case channelCloseOk:
	case confirmSelect:
		answer(confirmSelectOk.begin())
	case exchangeDeclare:
		args.short()
		ch := c.channels[channel]
		ch.exchange = args.shortText()
		if t := c.w.cluster.topics[ch.exchange]; t == nil || t.missing {
			ch.end(404, "NOT_FOUND - no exchange", m)
			return
		}
		answer(exchangeDeclareOk.begin())
	default:
		panic("a method that no broker here knows")
	}
}

// end closes the channel from the broker's side. Called with mu held.
func (ch *queueChannel) end(code uint16, text string, m method) {
	ch.giveUp()
	ch.closed = true
	ch.conn.w.note("p%d's channel %d to %s is closed: %s", ch.conn.p.number, ch.number, ch.exchange, text)
	ch.conn.say(frame(frameMethod, ch.number,
		channelClose.begin().short(code).shortText(text).short(m.class).short(m.number)))
}

// complete sends a message on its way when all of it is there. Called with mu held.
func (ch *queueChannel) complete() {
	a, c := ch.arriving, ch.conn
	if a.left > 0 {
		return
	}
	ch.arriving = nil
	ch.tags++
	w, p, tag := c.w, c.p, ch.tags
	rec := &sink.Record{Topic: ch.exchange, Value: a.body}
	for _, name := range slices.Sorted(maps.Keys(a.headers)) {
		switch name {
		case "id", "x-outbox-late", "x-outbox-error-class":
			rec.Headers.Add(name, []byte(a.headers[name]))
		case "x-outbox-key":
			rec.Key = []byte(a.headers[name])
		}
	}
	m, copyOf := w.messageOf(p, rec)
	if ch.decided == 0 { // the first wave
		w.judgeWithin(p, time.Now(), openPatience)
	} else {
		w.judgeRequest(p, time.Now())
	}
	ch.dropOthers()
	if ch.decided == tag-1 && len(ch.acks) == 0 {
		ch.wave = nil
	}
	if m.row != nil {
		ch.wave = append(ch.wave, sentRow{m.row, p.serial})
	}
	p.requests[m.id]++
	roll, serial := w.dice(aboutQueue, uint64(p.number), about(m.id), uint64(p.requests[m.id])), p.serial
	lag := roll.pause(0, one(roll, 0, time.Millisecond, 5*time.Millisecond))
	if !w.calm && roll.chance(w.profile.slowAnswer/4) {
		w.fault(requestSlow)
		lag = roll.pause(20*time.Millisecond, 1500*time.Millisecond)
	}
	if !w.calm && roll.chance(w.profile.lateAppend/16) {
		w.fault(messageLate)
		lag = roll.pause(time.Second, 6*time.Second)
	}
	receive := func() {
		w.cluster.receive(p, serial, w.cluster.topics[ch.exchange].partitions[0], m, copyOf)
	}
	c.inbound.in(lag, func() { ch.arrive(tag, a, roll, receive) })
}

// dropOthers gives the process's other channels to the exchange up: it uses one at a time. Called with mu held.
func (ch *queueChannel) dropOthers() {
	for _, other := range ch.conn.p.channels {
		if other != ch && other.exchange == ch.exchange {
			other.giveUp()
		}
	}
	ch.conn.p.channels = slices.DeleteFunc(ch.conn.p.channels, func(other *queueChannel) bool {
		return other == ch || other.exchange == ch.exchange
	})
	ch.conn.p.channels = append(ch.conn.p.channels, ch)
}

// arrive decides what becomes of a message. Called with mu held.
func (ch *queueChannel) arrive(tag uint64, a *arriving, roll *dice, receive func()) {
	c, w := ch.conn, ch.conn.w
	t := w.cluster.topics[ch.exchange]
	switch {
	case c.broken || c.p.dead:
		if roll.chance(0.5) && !ch.closed && !t.missing { // what was on its way may arrive all the same
			receive()
		}
		return
	case ch.closed:
		return
	case w.cluster.down, !w.calm && roll.chance(w.profile.unknown/2):
		w.counts.UnknownRequests++
		if roll.chance(0.5) {
			receive()
		}
		c.cut()
		return
	case t.missing:
		ch.end(404, "NOT_FOUND - no exchange", basicPublish)
		return
	case t.forbidden:
		ch.end(403, "ACCESS_REFUSED", basicPublish)
		return
	case ch.mute, t.partitions[0].leader < 0:
		ch.mute, ch.acks = true, nil
		if roll.chance(0.5) {
			receive()
		}
		return
	}
	ch.decided = tag
	confirm := frame(frameMethod, ch.number, basicAck.begin().longlong(tag).octet(0))
	switch {
	case t.partitions[0].troubled, !w.calm && roll.chance(w.profile.notWritten/2):
		w.fault(messageNacked)
		c.say(frame(frameMethod, ch.number, basicNack.begin().longlong(tag).octet(0)))
	case !w.calm && roll.chance(w.profile.notWritten/2):
		w.fault(messageReturned)
		c.say(append([][]byte{frame(frameMethod, ch.number,
			basicReturn.begin().short(312).shortText("NO_ROUTE").shortText(ch.exchange).shortText(a.routing))},
			append(a.frames(ch.number), confirm)...)...)
	case roll.chance(0.3): // together with others
		receive()
		ch.acks = append(ch.acks, tag)
		w.after(roll.pause(0, 5*time.Millisecond), ch.confirm)
	default:
		receive()
		c.say(confirm)
	}
}

// frames are the message's own.
func (a *arriving) frames(channel uint16) (frames [][]byte) {
	for i, payload := range a.raw {
		kind := byte(frameBody)
		if i == 0 {
			kind = frameHeader
		}
		frames = append(frames, frame(kind, channel, payload))
	}
	return frames
}

// confirm sends the confirms that have waited, as one: all before the last are decided by then. Called with mu held.
func (ch *queueChannel) confirm() {
	if len(ch.acks) == 0 || ch.closed || ch.conn.broken {
		return
	}
	tag := ch.acks[len(ch.acks)-1]
	ch.acks = nil
	ch.conn.say(frame(frameMethod, ch.number, basicAck.begin().longlong(tag).octet(1)))
}
