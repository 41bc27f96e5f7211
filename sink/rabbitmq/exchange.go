package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/sink"
)

const (
	// waveLimit is the most messages of a wave.
	waveLimit = 500
	// narrowing is into how many parts a wave is cut for one of whose messages the server closed the channel. In front of
	// it messages are written whose confirms went with the channel, so each cut doubles them: few cuts are better than
	// few waves.
	narrowing = 8
	// stint is how long one call begins waves, so that the engine asks again whether it may send. It is a little more than
	// a wave takes.
	stint = 50 * time.Millisecond
	// openPatience is how old the permission to send may be when the channel is open at last: a process that was frozen
	// in the meantime must ask again.
	openPatience = time.Second
)

// exchange is one exchange and its channel. What has no other owner belongs to who took the turn.
type exchange struct {
	driver *Driver
	name   string
	turn   chan struct{} // holds a token while no one publishes

	channel *amqp.Channel
	blocked *atomic.Bool
	serial  uint64 // of messages without an id
	back    *returned
	closed  chan *amqp.Error // why it was closed
}

// returned are the messages of a channel that came back.
type returned struct {
	ask   chan chan []amqp.Return // hands out what was returned so far
	ended chan struct{}           // closed with the channel
	last  []amqp.Return           // what was returned and not asked for, once the channel has ended
}

// progress is Batch.State: which records are confirmed. It may be longer than the batch, by the front that the engine
// was told of.
type progress struct {
	done  []bool
	sent  []bool // with an outcome that is not known
	doubt []bool // so was an earlier attempt, whatever became of this one
	most  int    // messages of a wave, since the server closed the channel for one of them; 0: waveLimit
}

// produce sends what is not confirmed of the batch, wave by wave, for as long as a stint.
func (e *exchange) produce(ctx context.Context, b *sink.Batch) {
	p, _ := b.State.(*progress)
	if p == nil {
		p = new(progress)
	} else {
		told := len(p.done) - len(b.Records)
		p.done, p.sent, p.doubt = p.done[told:], p.sent[told:], p.doubt[told:]
	}
	select {
	case <-e.turn:
	case <-ctx.Done():
		b.Outcome = p.failed(sink.NotWritten, context.Cause(ctx))
		return
	}
	defer func() { e.turn <- struct{}{} }()
	if b.State == nil {
		if b.Outcome = e.judge(b); b.Outcome.Verdict == sink.Refused {
			return
		}
		n := len(b.Records)
		p.done, p.sent, p.doubt = make([]bool, n), make([]bool, n), make([]bool, n)
		b.State = p
	}
	for began := time.Now(); ; {
		wave := p.wave(b.Records)
		if len(wave) == 0 {
			b.Outcome = sink.Outcome{Verdict: sink.Accepted, FirstOffset: -1}
			return
		}
		if wave[0] > 0 && time.Since(began) > stint {
			b.Outcome = sink.Outcome{Verdict: sink.NotWritten, Written: wave[0], FirstOffset: -1}
			return
		}
		err := e.open(ctx)
		if took := time.Since(began); err == nil && took > openPatience {
			err = fmt.Errorf("open a channel: it took %v, and another relay may have the slot since this one might send", took)
		}
		if err != nil {
			b.Outcome = p.failed(sink.NotWritten, err)
			return
		}
		verdict, err := e.send(ctx, b.Records, p, wave)
		if reason := objection(err); reason != nil {
			left := p.open(wave)
			if len(left) == 1 { // a wave begins at the front
				i := left[0]
				b.Outcome = sink.Outcome{Verdict: sink.Refused, Written: i, FirstOffset: -1, Guilty: []int{i},
					Reasons: []*sink.Reason{reason}, Code: reason.Code}
				return
			}
			p.most = max(1, len(left)/narrowing)
			continue
		}
		if err != nil {
			b.Outcome = p.failed(verdict, err)
			return
		}
	}
}

// objection is why the server closed the channel for a message of the wave; nil: that was not why. Such a message
// closes each channel that it is sent on. A right that is missing for its routing key may be granted yet.
func objection(err error) *sink.Reason {
	var said *amqp.Error
	if !errors.As(err, &said) || !said.Server {
		return nil
	}
	switch {
	case said.Code == amqp.PreconditionFailed, said.Code == amqp.ContentTooLarge, said.Code == amqp.NotImplemented:
		return invalid("CHANNEL_CLOSED", "RabbitMQ closes the channel at this message: "+said.Error())
	case said.Code == amqp.AccessRefused && strings.Contains(said.Reason, "access to topic"):
		return &sink.Reason{Class: outbox.Transient, Code: "ACCESS_REFUSED",
			Text: "RabbitMQ closes the channel at this message: " + said.Error()}
	}
	return nil
}

// open lists what is not confirmed of a wave.
func (p *progress) open(wave []int) (left []int) {
	for _, i := range wave {
		if !p.done[i] {
			left = append(left, i)
		}
	}
	return left
}

// front is how many records at the front are confirmed.
func (p *progress) front() (n int) {
	for n < len(p.done) && p.done[n] {
		n++
	}
	return n
}

// judge looks at every record before the first is sent.
func (e *exchange) judge(b *sink.Batch) (o sink.Outcome) {
	for i, r := range b.Records {
		if _, _, reason := e.driver.config.message(r); reason != nil {
			o.Verdict, o.Unsent = sink.Refused, true
			o.Guilty, o.Reasons = append(o.Guilty, i), append(o.Reasons, reason)
		}
	}
	return o
}

// wave is the next records to be sent, by index: each key once.
func (p *progress) wave(records []*sink.Record) (wave []int) {
	keys, most := make(map[string]struct{}), waveLimit
	if p.most > 0 {
		most = p.most
	}
	for i, r := range records {
		if p.done[i] {
			continue
		}
		if _, taken := keys[string(r.Key)]; taken && r.Key != nil || len(wave) == most {
			break
		}
		keys[string(r.Key)] = struct{}{}
		wave = append(wave, i)
	}
	return wave
}

// failed is the outcome of a batch that must come again.
func (p *progress) failed(verdict sink.Verdict, err error) sink.Outcome {
	front := p.front()
	o := sink.Outcome{
		Verdict: verdict, Err: err, Trouble: sink.TroubleOf(err, sink.ClusterTrouble), FirstOffset: -1, Written: front,
		Pause: true,
	}
	for i := front; i < len(p.done); i++ {
		switch {
		case p.done[i]:
			o.Beyond = append(o.Beyond, sink.Placed{Index: i, Offset: -1})
		case p.sent[i] || p.doubt[i]:
			o.Verdict = sink.Unknown
		}
	}
	return o
}

// open makes the channel, if there is none, and looks whether the exchange is there.
func (e *exchange) open(ctx context.Context) error {
	if e.channel != nil && !e.channel.IsClosed() {
		return nil
	}
	e.channel = nil
	c, blocked, err := e.driver.connect(ctx)
	if err != nil {
		return err
	}
	// A server with an alarm of memory or disk does not read, and the client waits for its answer without an end.
	defer c.endWith(ctx)()
	ch, err := c.Channel()
	if err != nil {
		return &trouble{sink.ClusterTrouble, fmt.Errorf("open a channel: %w", err)}
	}
	if err := ch.ExchangeDeclarePassive(e.name, "", true, false, false, false, nil); err != nil {
		return e.blame(fmt.Errorf("look for exchange %s: %w", e.name, err))
	}
	if err := ch.Confirm(false); err != nil {
		return e.blame(fmt.Errorf("ask for confirms: %w", err))
	}
	e.driver.Reached()
	e.channel, e.blocked = ch, blocked
	e.closed = ch.NotifyClose(make(chan *amqp.Error, 1))
	e.back = &returned{ask: make(chan chan []amqp.Return), ended: make(chan struct{})}
	// Unbuffered, so that the client hands over a return before it sees the ack of the same message.
	go e.back.gather(ch.NotifyReturn(make(chan amqp.Return)))
	return nil
}

// gather keeps what is returned until it is asked for, and ends with the channel.
func (r *returned) gather(returns <-chan amqp.Return) {
	defer close(r.ended)
	for {
		select {
		case m, open := <-returns:
			if !open {
				return
			}
			r.last = append(r.last, m)
		case answer := <-r.ask:
			answer <- r.last
			r.last = nil
		}
	}
}

// all are the messages that were returned since the last call.
func (r *returned) all() []amqp.Return {
	answer := make(chan []amqp.Return, 1)
	select {
	case r.ask <- answer:
		return <-answer
	case <-r.ended:
		return r.last
	}
}

// blame says whose trouble an answer of the server is.
func (e *exchange) blame(err error) error {
	var said *amqp.Error
	if errors.As(err, &said) && (said.Code == amqp.NotFound || said.Code == amqp.AccessRefused ||
		said.Code == amqp.PreconditionFailed) {
		e.driver.Reached()
		if said.Code == amqp.AccessRefused {
			err = fmt.Errorf("%w; the user needs: %s", err, e.driver.config.grant("^"+regexp.QuoteMeta(e.name)+"$"))
		}
		return &trouble{sink.TopicTrouble, fmt.Errorf("exchange %s: %w", e.name, err)}
	}
	return &trouble{sink.ClusterTrouble, fmt.Errorf("exchange %s: %w", e.name, err)}
}

// send publishes a wave and waits for what becomes of it. Confirms are awaited message by message: the client's list of
// confirmations in order takes a refused message for confirmed when a later ack is for several.
func (e *exchange) send(ctx context.Context, records []*sink.Record, p *progress, wave []int) (sink.Verdict, error) {
	messages := make([]amqp.Publishing, len(wave)) // to know what is returned
	fates := make([]*amqp.DeferredConfirmation, len(wave))
	for n, i := range wave {
		m, key, _ := e.driver.config.message(records[i])
		if m.MessageId == "" {
			e.serial++
			m.MessageId = fmt.Sprintf("%s/%d", e.name, e.serial)
		}
		messages[n] = m
		if p.sent[i] {
			e.driver.duplicates.Add(1)
			p.doubt[i] = true
		}
		p.sent[i] = true
		var err error
		if fates[n], err = e.channel.PublishWithDeferredConfirmWithContext(ctx, e.name, key, true, false, m); err != nil {
			if err = e.blame(fmt.Errorf("publish: %w", err)); e.channel.IsClosed() {
				err = e.why()
			}
			e.known(p, wave[:n], messages, fates)
			e.drop()
			return sink.Unknown, err
		}
	}
	for _, fate := range fates {
		if err := e.await(ctx, fate); err != nil {
			e.known(p, wave, messages, fates)
			e.drop()
			return sink.Unknown, err
		}
	}
	return sink.NotWritten, e.conclude(p, wave, messages, fates)
}

// await waits until the message is confirmed, refused or returned.
func (e *exchange) await(ctx context.Context, fate *amqp.DeferredConfirmation) error {
	silence := time.NewTimer(e.driver.config.RequestTimeout)
	defer silence.Stop()
	for {
		select {
		case <-fate.Done():
			if !fate.Acked() && e.channel.IsClosed() { // which refuses what is out, without the server's word
				return e.why()
			}
			return nil
		case <-silence.C:
			if !e.blocked.Load() { // an alarm of memory or disk: everything is confirmed when it is over
				return e.blame(fmt.Errorf("nothing was confirmed for %v", e.driver.config.RequestTimeout))
			}
			silence.Reset(e.driver.config.RequestTimeout)
		case <-ctx.Done():
			return e.blame(fmt.Errorf("wait for confirms: %w", context.Cause(ctx)))
		}
	}
}

// why is the reason for which the channel was closed.
func (e *exchange) why() error {
	if err := <-e.closed; err != nil {
		return e.blame(err)
	}
	return e.blame(errors.New("the channel was closed"))
}

// known applies the server's answers to an incomplete wave: confirmed messages don't come
// again.
func (e *exchange) known(p *progress, wave []int, messages []amqp.Publishing, fates []*amqp.DeferredConfirmation) {
	var acked []int // before the returns are asked for: a message's return comes before its ack
	for n := range wave {
		select {
		case <-fates[n].Done():
			if fates[n].Acked() {
				acked = append(acked, n)
			}
		default:
		}
	}
	back := map[identity]bool{}
	for _, r := range e.back.all() {
		back[identityOf(r.MessageId, r.Headers)] = true
	}
	for _, n := range acked {
		p.sent[wave[n]] = false
		p.done[wave[n]] = !back[identityOf(messages[n].MessageId, messages[n].Headers)]
	}
}

// conclude applies the outcome of a complete wave. The error is why some messages were not written.
func (e *exchange) conclude(p *progress, wave []int, messages []amqp.Publishing,
	fates []*amqp.DeferredConfirmation) (problem error) {
	e.driver.Reached()
	back := map[identity]bool{}
	for _, r := range e.back.all() {
		back[identityOf(r.MessageId, r.Headers)] = true
		problem = &trouble{sink.TopicTrouble,
			fmt.Errorf("exchange %s: no queue takes routing key %q (%s)", e.name, r.RoutingKey, r.ReplyText)}
	}
	for n, i := range wave {
		p.sent[i] = false // what became of it is known
		p.done[i] = fates[n].Acked() && !back[identityOf(messages[n].MessageId, messages[n].Headers)]
		if !fates[n].Acked() {
			problem = &trouble{sink.PartitionTrouble, fmt.Errorf("exchange %s: a queue refused the message (nack)", e.name)}
		}
	}
	return problem
}

// drop gives the channel up. Closing can hang with a silent server, so it goes on behind.
func (e *exchange) drop() {
	ch := e.channel
	e.channel = nil
	go func() { _ = ch.Close() }()
}
