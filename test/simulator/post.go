package simulator

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"path"
	"time"

	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/webhook"
)

const (
	// postTimeout is exceeded by the slowest answers.
	postTimeout = time.Second
	// mostStumbles is how often in a row an endpoint fails on one event by chance. The driver sets one aside as its own
	// fault after ten; that it is in no topic then no one could say.
	mostStumbles = 5
)

// What an endpoint answers to an event that it refuses: permanently, and for now.
const (
	badEvent   = http.StatusBadRequest
	laterEvent = http.StatusUnprocessableEntity
)

// poster is endpoints as one process reaches them. The driver is package webhook's own, lanes and answers included; the
// requests go nowhere.
type poster struct {
	p     *process
	posts map[string]uint64 // so far, by id; guarded by world.mu
}

func newPostDriver(p *process) sink.Driver {
	d, err := webhook.New(webhook.Config{
		URL: "http://receiver", Lanes: p.w.profile.partitions, Timeout: postTimeout, Faults: []int{badEvent},
		Retried: []int{laterEvent}, IDHeader: "id", Transport: &poster{p: p, posts: map[string]uint64{}},
	})
	if err != nil {
		panic(fmt.Sprintf("the driver for webhooks: %v", err))
	}
	p.witness = d
	return &postDriver{d, p.w}
}

type postDriver struct {
	*webhook.Driver
	w *world
}

// Dropped implements [sink.Dropper].
func (d *postDriver) Dropped(b *sink.Batch) {
	d.w.giveUp(b)
	d.Driver.Dropped(b)
}

// fate is the outcome of a request.
type fate struct {
	status int // of the answer; 0: there is none
	// The endpoint takes the message at once, when it answers, or a while after the sender has heard of nothing.
	now, then, later bool
	silence          string // Retry-After
}

// RoundTrip implements [http.RoundTripper].
func (t *poster) RoundTrip(q *http.Request) (*http.Response, error) {
	p, w, ctx, asked := t.p, t.p.w, q.Context(), time.Now()
	if err := p.pass(ctx, "post"); err != nil {
		return nil, err
	}
	rec := recordIn(q)
	w.mu.Lock()
	w.judgeRequest(p, asked)
	if w.cluster.down {
		w.mu.Unlock()
		return nil, errAway
	}
	httptrace.ContextClientTrace(ctx).GotConn(httptrace.GotConnInfo{})
	m, copyOf := w.messageOf(p, rec)
	t.posts[m.id]++
	roll := w.dice(aboutPost, uint64(p.number), about(m.id), t.posts[m.id])
	part, serial := w.laneOf(rec, roll), p.serial
	f := w.fateOf(rec.Topic, m.row, roll)
	pause := w.answerPause(roll)
	if m.row != nil && m.row.stumbles >= mostStumbles {
		pause = min(pause, postTimeout/2)
	}
	receive := func() { w.cluster.receive(p, serial, part, m, copyOf) }
	if f.now {
		receive()
	}
	w.mu.Unlock()
	p.sleep(ctx, pause)
	w.mu.Lock()
	if p.dead || ctx.Err() != nil { // no one hears the answer
		if m.row != nil {
			m.row.stumbles++
		}
		f = fate{now: f.now, later: f.then && roll.chance(0.5), then: f.then && roll.chance(0.5)}
	}
	w.fulfil(f, m.row, serial, roll, receive)
	w.note("p%d posts %s to %s: %d", p.number, m.id, rec.Topic, f.status)
	w.mu.Unlock()
	if err := p.pass(ctx, "post ends"); err != nil {
		return nil, err
	}
	if f.status == 0 {
		return nil, errorOf(ctx)
	}
	answer := &http.Response{StatusCode: f.status, Header: http.Header{}, Body: http.NoBody}
	if f.silence != "" {
		answer.Header.Set("Retry-After", f.silence)
	}
	return answer, nil
}

// fulfil lets the endpoint take the message when it is to. Called with mu held.
func (w *world) fulfil(f fate, r *row, serial int, roll *dice, receive func()) {
	heard := f.status >= 200 && f.status <= 299
	if !heard && (f.now || f.then || f.later) {
		w.unheard(r, serial)
	}
	switch {
	case f.now:
	case f.later:
		w.fault(messageLate)
		w.after(roll.pause(0, one(roll, time.Second, 5*time.Second)), receive)
	case f.then:
		receive()
	}
	if r != nil && heard {
		r.stumbles = 0
	}
}

func errorOf(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return io.ErrUnexpectedEOF
}

// fateOf draws the request's fate. Called with mu held.
func (w *world) fateOf(topic string, r *row, roll *dice) fate {
	t := w.cluster.topics[topic]
	uncertain := func(status int) fate {
		w.counts.UnknownRequests++
		switch roll.below(4) {
		case 0:
			return fate{status: status, now: true}
		case 1:
			return fate{status: status, then: true}
		case 2:
			return fate{status: status, later: true}
		}
		return fate{status: status}
	}
	stumbles := false
	if !w.calm && r != nil && !r.refused() && r.stumbles < mostStumbles {
		stumbles = roll.chance(w.profile.unknown + w.profile.notWritten)
	}
	switch {
	case t.missing:
		return fate{status: http.StatusNotFound}
	case t.forbidden:
		return fate{status: http.StatusForbidden}
	case r.refused():
		w.counts.Refusals++
		if r.refusals++; r.poison == permanent {
			return fate{status: badEvent}
		}
		return fate{status: laterEvent}
	case t.troubled():
		return uncertain(http.StatusServiceUnavailable)
	case stumbles && roll.chance(w.profile.unknown/(w.profile.unknown+w.profile.notWritten)):
		r.stumbles++
		w.counts.Cuts++
		if roll.chance(0.4) {
			w.fault(answerWithout)
			return uncertain(one(roll, http.StatusBadGateway, http.StatusRequestTimeout))
		}
		w.fault(connectionCut)
		return uncertain(0)
	case stumbles:
		r.stumbles++
		w.fault(requestNotWritten)
		f := fate{status: http.StatusTooManyRequests}
		if roll.chance(0.3) {
			w.fault(endpointAsksPause)
			f.silence = "1"
		}
		return f
	}
	return fate{status: one(roll, http.StatusOK, http.StatusAccepted), now: roll.chance(0.5), then: true}
}

// troubled reports that one of the topic's partitions is in trouble. Lanes of one endpoint are so together.
func (t *clusterTopic) troubled() bool {
	for _, part := range t.partitions {
		if part.troubled || part.leader < 0 {
			return true
		}
	}
	return false
}

// answerPause is how long an answer takes. Called with mu held.
func (w *world) answerPause(roll *dice) time.Duration {
	pause := roll.pause(0, one(roll, 0, time.Millisecond, 20*time.Millisecond))
	if roll.chance(w.profile.slowAnswer) && !w.calm {
		w.fault(requestSlow)
		pause = roll.pause(20*time.Millisecond, one(roll, 300*time.Millisecond, 1500*time.Millisecond))
	}
	return pause
}

// messageOf compares what is sent with the row that it is of. Called with mu held.
func (w *world) messageOf(p *process, rec *sink.Record) (m message, copyOf *row) {
	m.topic = rec.Topic
	if rec.Topic == w.profile.config.DLQ.Topic {
		copyOf = w.judgeCopy(p, rec)
		m.id, m.copy = copyOf.id, true
	} else if m.row = w.judgeSent(p, rec); m.row != nil {
		m.id = m.row.id
	}
	return m, copyOf
}

// laneOf is the lane of the key, as the driver chooses it; any for a record without one. Called with mu held.
func (w *world) laneOf(rec *sink.Record, roll *dice) *clusterPartition {
	parts := w.cluster.topics[rec.Topic].partitions
	if rec.Key == nil {
		return parts[roll.below(len(parts))]
	}
	return parts[(*driver)(nil).Partition(rec, len(parts))]
}

// recordIn is the record that the request carries.
func recordIn(q *http.Request) *sink.Record {
	body, err := io.ReadAll(q.Body)
	if err != nil {
		panic(fmt.Sprintf("read the body of a request: %v", err))
	}
	rec := &sink.Record{Topic: path.Base(q.URL.Path), Value: body}
	for name, values := range q.Header {
		switch name {
		case "id", "x-outbox-late", "x-outbox-error-class":
			rec.Headers.Add(name, []byte(values[0]))
		case "x-outbox-key":
			rec.Key = []byte(values[0])
		}
	}
	return rec
}
