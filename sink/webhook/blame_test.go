package webhook_test

import (
	"io"
	"net/http"
	"net/http/httptrace"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/webhook"
	"github.com/cdc-relay/cdc-relay/test/sinktest"
)

// said is an answer, with a Retry-After or "".
type said struct {
	status int
	after  string
}

// picking is an endpoint that takes every event but one, for which it asks the test what to answer.
type picking struct {
	asked  chan struct{}
	answer chan said
}

const disliked = "disliked"

// RoundTrip implements [http.RoundTripper].
func (p *picking) RoundTrip(q *http.Request) (*http.Response, error) {
	httptrace.ContextClientTrace(q.Context()).GotConn(httptrace.GotConnInfo{})
	body, err := io.ReadAll(q.Body)
	if err != nil {
		return nil, err
	}
	answer := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody}
	if string(body) != disliked {
		return answer, nil
	}
	var s said
	select {
	case p.asked <- struct{}{}:
		s = <-p.answer
	case <-q.Context().Done(): // the test has failed
		return nil, q.Context().Err()
	}
	answer.StatusCode = s.status
	if s.after != "" {
		answer.Header.Set("Retry-After", s.after)
	}
	return answer, nil
}

// blamed is one way to answer the disliked event, and what becomes of it.
type blamed struct {
	said
	refused, doubtful bool
}

// One event is answered in one way, again and again, and another is taken before each of these answers. Breaks it
// catches: a good event that dies of a rate limit, or spends its attempts on it; an event that the endpoint fails on
// and that blocks its lane, or silences the endpoint, permanently. Seen to fail with each of 408, 425 and 429 counted,
// with 503 not doubted, and doubted beside a Retry-After, with nothing refused beside one, with 403 refused beside one,
// and with the last one kept to.
func TestLimitsBlameNoEventAndFailuresDo(t *testing.T) {
	for name, c := range map[string]blamed{
		"429":                  {said: said{status: 429}},
		"429 with Retry-After": {said: said{429, "1"}},
		"408":                  {said: said{status: 408}},
		"425":                  {said: said{status: 425}},
		"403 with Retry-After": {said: said{403, "1"}},
		"503":                  {said: said{status: 503}, refused: true, doubtful: true},
		"503 with Retry-After": {said: said{503, "60"}, refused: true},
		"500":                  {said: said{status: 500}, refused: true},
		"500 with Retry-After": {said: said{500, "60"}, refused: true},
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, c.play) })
	}
}

func (c blamed) play(t *testing.T) {
	const many, stumbles = 25, 10
	p := &picking{asked: make(chan struct{}), answer: make(chan said)}
	d, err := webhook.New(webhook.Config{URL: "http://receiver", Timeout: time.Hour, Transport: p})
	if err != nil {
		t.Fatal(err)
	}
	f := sinktest.NewFlow(t, d)
	one := &sink.Record{Topic: "orders", Key: []byte("one"), Value: []byte(disliked), Cost: 100}
	other := func() {
		r := &sink.Record{Topic: "orders", Key: []byte("other"), Value: []byte("{}"), Cost: 100}
		if d.Partition(r, webhook.DefaultLanes) == d.Partition(one, webhook.DefaultLanes) {
			t.Fatal("both keys have the same lane")
		}
		submit(t, f, r)
		if done := collect(t, f, 1); done[0] != r || r.Result != sink.Published {
			t.Fatalf("got event %s with result %d, want the other one, published", done[0].Value, done[0].Result)
		}
	}
	submit(t, f, one)
	for n := range many {
		select {
		case <-p.asked:
		case <-time.After(time.Hour): // it is set aside
			t.Fatalf("not asked again after %d answers", n)
		}
		other()
		if p.answer <- c.said; c.refused && n == stumbles {
			break
		}
	}
	if !c.refused {
		<-p.asked
		p.answer <- said{status: http.StatusOK}
		if collect(t, f, 1); one.Result != sink.Published {
			t.Errorf("got result %d, reason %v; want it published", one.Result, one.Reason)
		}
		return
	}
	collect(t, f, 1)
	if why := one.Reason; one.Result != sink.Rejected || why.Class != outbox.Transient || why.Doubtful != c.doubtful ||
		(why.Pause > 0) != c.doubtful {
		t.Errorf("got result %d, reason %+v; want it rejected, doubtful %t", one.Result, why, c.doubtful)
	}
	began := time.Now()
	if other(); time.Since(began) > time.Second {
		t.Errorf("the endpoint was left alone for %v more, want no silence for that event", time.Since(began))
	}
}
