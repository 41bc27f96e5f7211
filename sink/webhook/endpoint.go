package webhook

import (
	"cmp"
	"context"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/sink"
)

const (
	// stint is how long a lane sends until it tells what was delivered.
	stint = 50 * time.Millisecond
	// stumbles is how often in a row an endpoint must fail on one event, and take another in between each time, until
	// the event itself is to blame.
	stumbles = 10
	// overloadPause is how long an event at least rests that an endpoint says it is too busy for, while it takes others.
	overloadPause = 10 * time.Second
)

// endpoint is one endpoint. Its lanes use it at the same time; a lane's own state is in its batch.
type endpoint struct {
	driver  *Driver
	topic   string
	url     *url.URL
	user    *url.Userinfo
	problem error // why there is no endpoint; nil: there is one
	keys    keyring

	accepted atomic.Int64 // when it has taken an event last, see sinceStart; 0: never
	tried    atomic.Bool  // it was, so that down is known
	down     atomic.Pointer[outage]
	asked    atomic.Pointer[silence]
}

// outage is that no connection is possible.
type outage struct {
	since time.Time
	err   error
}

// silence is the pause that the endpoint asked for.
type silence struct {
	until   time.Time
	trouble sink.Trouble
	err     error // its answer
}

// front is Batch.State: what became so far of the first record that is not delivered.
type front struct {
	uncertain bool      // it may have been delivered
	failed    time.Time // when it failed last; zero: it has not
	passed    int       // how often it failed, and may be to blame, after another was taken in between
	first     time.Time // when it failed for the first time
	others    int       // how often it failed since another was taken after that
}

// produce sends the batch's records one after the other, for as long as a stint.
func (e *endpoint) produce(ctx context.Context, b *sink.Batch) {
	f, _ := b.State.(*front)
	if f == nil {
		f = new(front)
		b.State = f
	}
	began := time.Now()
	for i, r := range b.Records {
		if i > 0 && time.Since(began) > stint {
			b.Outcome = sink.Outcome{Verdict: sink.NotWritten, Written: i, FirstOffset: -1}
			return
		}
		o := e.deliver(ctx, r, f)
		if o.Verdict != sink.Accepted {
			o.Written, o.FirstOffset = i, -1
			if o.Verdict == sink.Refused {
				o.Guilty, o.Unsent = []int{i}, o.Unsent && i == 0
			}
			b.Outcome = o
			return
		}
		*f = front{}
	}
	b.Outcome = sink.Outcome{Verdict: sink.Accepted, FirstOffset: -1}
}

// deliver sends one record, once.
func (e *endpoint) deliver(ctx context.Context, r *sink.Record, f *front) sink.Outcome {
	if s := e.asked.Load(); s != nil {
		if wait := time.Until(s.until); wait > 0 {
			o := sink.Outcome{Verdict: sink.NotWritten, Err: s.err, Trouble: s.trouble, Pause: true, Throttle: wait}
			if f.uncertain {
				o.Verdict = sink.Unknown
			}
			return o
		}
		e.asked.CompareAndSwap(s, nil)
	}
	ctx, cancel := context.WithTimeout(ctx, e.driver.config.Timeout)
	defer cancel()
	content := &body{all: r.Value}
	defer content.shut()
	reached, doubt := false, f.uncertain
	q, reason, err := e.request(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) {
			if doubt && !reached {
				e.driver.duplicates.Add(1)
			}
			reached = true
		},
	}), r, content)
	switch {
	case reason != nil:
		return sink.Outcome{Verdict: sink.Refused, Reasons: []*sink.Reason{reason}, Unsent: true}
	case err != nil:
		o := sink.Outcome{Verdict: sink.NotWritten, Err: err, Trouble: sink.ConfigurationTrouble, Pause: true}
		if doubt {
			o.Verdict = sink.Unknown
		}
		return o
	}
	answer, err := e.driver.transport.RoundTrip(q)
	e.tried.Store(true)
	var o sink.Outcome
	status := 0
	if err != nil {
		o = e.unanswered(ctx, err, reached)
	} else {
		status = answer.StatusCode
		e.driver.told.Store(sinceStart(time.Now()))
		defer answer.Body.Close()
		e.down.Store(nil)
		o = e.judge(answer)
	}
	if doubt && o.Verdict == sink.NotWritten { // an earlier attempt may have been received
		o.Verdict = sink.Unknown
	}
	f.uncertain = o.Verdict == sink.Unknown
	if o.Verdict == sink.Accepted {
		e.accepted.Store(sinceStart(time.Now()))
	} else if reached {
		f.stumble(e, &o, status)
	}
	e.heed(&o)
	return o
}

// blameless reports whether an answer is about how much or how fast we send, never about what: a limit hits good
// events, and some of them ten times in a row, while the lanes beside them succeed.
func blameless(status int) bool {
	return status == http.StatusTooManyRequests || status == http.StatusRequestTimeout || status == http.StatusTooEarly
}

// stumble notes that the endpoint failed on the record, with that status or 0 for no answer, and refuses it when that
// is its own doing. A 4xx is about the request: it is the event's doing when the endpoint has taken others since it
// answered so first, which may have been few, and long ago. With a 5xx it does so whatever Retry-After says: else one
// event would have the endpoint left alone again and again, permanently.
func (f *front) stumble(e *endpoint, o *sink.Outcome, status int) {
	if o.Verdict == sink.Refused || blameless(status) {
		return
	}
	if !f.failed.IsZero() && after(e.accepted.Load(), f.failed) {
		f.passed++
	}
	f.failed = time.Now()
	if f.first.IsZero() {
		f.first = f.failed
	} else if after(e.accepted.Load(), f.first) && status >= 400 && status < 500 {
		f.others++
	}
	if f.passed < stumbles && f.others < stumbles || o.Throttle > 0 && status < 500 {
		return
	}
	if o.Verdict == sink.Unknown { // it is sent again when its next attempt is due, and no one knows of this one then
		e.driver.duplicates.Add(1)
	}
	reason := &sink.Reason{Class: outbox.Transient, Code: cmp.Or(o.Code, "NO_ANSWER"),
		Text: "the endpoint fails on this event, and takes others in between: " + o.Err.Error()}
	if status == http.StatusServiceUnavailable && o.Throttle == 0 { // some tell of their limits so
		reason.Doubtful, reason.Pause = true, overloadPause
	}
	*o = sink.Outcome{Verdict: sink.Refused, Code: o.Code, Reasons: []*sink.Reason{reason}}
}
