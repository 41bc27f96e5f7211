package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/access/certs"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/sink"
)

const (
	shownAnswer = 200 // bytes of an answer's body that an error shows
	// longestSilence bounds what Retry-After can ask for.
	longestSilence = time.Hour
	// goneSilence is how long an endpoint is not asked again that wants no more.
	goneSilence = time.Hour
)

// where names the endpoint in errors. Its path and query stay out: they can be secret.
func (e *endpoint) where() string {
	return fmt.Sprintf("endpoint %s (%s://%s)", e.topic, e.url.Scheme, e.url.Host)
}

// unanswered interprets a missing answer. Reached: there was a connection, so that the request may have been
// received, unless the endpoint refused us by TLS, which it can do after our first bytes.
func (e *endpoint) unanswered(ctx context.Context, err error, reached bool) sink.Outcome {
	if u, is := errors.AsType[*url.Error](err); is { // it shows the URL
		err = u.Err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = e.late(ctx, err, reached)
	}
	err = fmt.Errorf("%s: %w", e.where(), err)
	untrusting := certs.IsError(err)
	if reached && !untrusting {
		e.down.Store(nil)
		return sink.Outcome{Verdict: sink.Unknown, Err: err, Trouble: sink.PartitionTrouble, Pause: true}
	}
	if before := e.down.Load(); before == nil {
		e.down.Store(&outage{time.Now(), err})
	} else {
		e.down.Store(&outage{before.since, err})
	}
	o := sink.Outcome{Verdict: sink.NotWritten, Err: err, Trouble: sink.ClusterTrouble, Pause: true}
	switch {
	case certs.IsOurs(err): // and of all endpoints
		o.Trouble = sink.ConfigurationTrouble
	case untrusting || refusedTLS(err): // it is there, and is not who it should be, or does not want us
		e.driver.told.Store(sinceStart(time.Now()))
		o.Trouble = sink.TopicTrouble
	}
	return o
}

// late says what took too long: a connect, which has a bound of its own, is not to be cured by a longer timeout.
func (e *endpoint) late(ctx context.Context, err error, reached bool) error {
	over := ctx.Err() != nil
	switch {
	case over && reached:
		return fmt.Errorf("no answer for %v: %w", e.driver.config.Timeout, err)
	case over:
		return fmt.Errorf("no connection within %v: %w", e.driver.config.Timeout, err)
	}
	return fmt.Errorf("no connection within %v: %w", dialTimeout, err)
}

// refusedTLS reports whether the connection failed at what the two sides think of each other, also through a proxy,
// where no one explains it.
func refusedTLS(err error) bool {
	if _, is := errors.AsType[*tls.CertificateVerificationError](err); is {
		return true
	}
	if _, is := errors.AsType[tls.RecordHeaderError](err); is {
		return true
	}
	return certs.IsAlert(err)
}

// judge interprets an answer.
func (e *endpoint) judge(answer *http.Response) sink.Outcome {
	status := answer.StatusCode
	said := readShown(answer.Body)
	if status >= 200 && status <= 299 {
		return sink.Outcome{Verdict: sink.Accepted}
	}
	code := "HTTP_OTHER"
	if status <= 599 {
		code = "HTTP_" + strconv.Itoa(status)
	}
	err := fmt.Errorf("%s answered %d %s%s", e.where(), status, http.StatusText(status), said)
	c := &e.driver.config
	switch {
	case slices.Contains(c.Faults, status):
		return refused(outbox.Permanent, code, err)
	case slices.Contains(c.Retried, status):
		return refused(outbox.Transient, code, err)
	}
	o := sink.Outcome{Verdict: sink.NotWritten, Err: err, Trouble: sink.TopicTrouble, Code: code, Pause: true}
	wait := retryAfter(answer.Header.Get("Retry-After"), time.Now())
	switch {
	case status == http.StatusNotFound, status == http.StatusUnauthorized, status == http.StatusForbidden:
		o.Err = gone{err}
	case status == http.StatusGone:
		wait = goneSilence
		o.Err = gone{fmt.Errorf("%w: it wants no more events. Take its topic out of the outbox, or ask its owner; it is "+
			"asked again in %v, or after a restart", err, goneSilence)}
	case status == http.StatusTooManyRequests:
		o.Trouble = sink.PartitionTrouble
	case status == http.StatusRequestTimeout, status == http.StatusTooEarly, status >= 500:
		o.Verdict, o.Trouble = sink.Unknown, sink.PartitionTrouble
	case status >= 300 && status <= 399:
		o.Err = fmt.Errorf("%w: redirects are not followed; set the URL to where it is now", err)
	}
	o.Throttle = wait
	return o
}

// gone is an error of an endpoint that is not there, or that takes nothing from us: it does not say what it has
// received before.
type gone struct{ error }

// Gone implements [sink.Gone].
func (gone) Gone() bool { return true }

// Unwrap is the error itself.
func (g gone) Unwrap() error { return g.error }

// heed has every lane keep the silence that an answer asked for.
func (e *endpoint) heed(o *sink.Outcome) {
	if o.Throttle <= 0 {
		return
	}
	until := time.Now().Add(o.Throttle)
	asked := fmt.Errorf("%w: it asked to wait until %s", o.Err, until.UTC().Format(time.RFC3339))
	e.asked.Store(&silence{until, o.Trouble, asked})
}

func refused(class outbox.ErrorClass, code string, err error) sink.Outcome {
	return sink.Outcome{Verdict: sink.Refused, Code: code,
		Reasons: []*sink.Reason{{Class: class, Code: code, Text: err.Error()}}}
}

// readShown reads the body, so that the connection can be used again, and gives its beginning for an error. Behind 101
// Switching Protocols the body is the connection itself, which can be written to: there may never be anything to read,
// and no deadline ends a read of it.
func readShown(body io.Reader) string {
	if _, raw := body.(io.Writer); raw {
		return ""
	}
	limited := io.LimitReader(body, maxAnswer)
	var first [shownAnswer]byte
	n, err := io.ReadFull(limited, first[:])
	if err == nil {
		_, _ = io.Copy(io.Discard, limited)
	}
	if shown := bytes.TrimSpace(first[:n]); len(shown) > 0 {
		return fmt.Sprintf(": %q", shown)
	}
	return ""
}

// retryAfter is how long Retry-After asks to wait, in seconds or until a date; 0: it asks for nothing.
func retryAfter(value string, now time.Time) time.Duration {
	if value == "" {
		return 0
	}
	if seconds, err := strconv.Atoi(value); err == nil {
		return time.Duration(max(min(seconds, int(longestSilence/time.Second)), 0)) * time.Second
	}
	if date, err := http.ParseTime(value); err == nil {
		return max(min(date.Sub(now), longestSilence), 0)
	}
	return 0
}
