package nats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"

	client "github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"github.com/cdc-relay/cdc-relay/internal/conditional"
	"github.com/cdc-relay/cdc-relay/sink"
)

// stream is one stream as package conditional sees it. What has no other owner belongs to who has the log's turn.
type stream struct {
	driver *Driver
	name   string
	node   int32
	log    *conditional.Log

	// Of its configuration, guarded by Driver.mu.
	maxSize int  // max_msg_size, 0 = none
	batches bool // allow_atomic
	slow    bool // it has several replicas, and takes no batches

	waiting atomic.Pointer[context.CancelCauseFunc] // ends the wait for acknowledgements; nil while no one waits

	acks    *client.Subscription // of the connection that it was made on
	made    *client.Conn
	inbox   string
	attempt uint64 // of Append, in this process
	smaller int    // how often batches were halved
}

// ack is the answer to one message.
type ack struct {
	Error     *apiError `json:"error"`
	Seq       int64     `json:"seq"`
	Duplicate bool      `json:"duplicate"`
}

// End implements [conditional.Stream].
func (s *stream) End(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, s.driver.config.RequestTimeout)
	defer cancel()
	nc, err := s.driver.connection(ctx)
	if err != nil {
		return 0, err
	}
	info, err := askStream(ctx, nc, s.name)
	return info.State.LastSeq, err
}

// Mark implements [conditional.Stream].
func (s *stream) Mark(r *sink.Record) conditional.Mark {
	m, reason := message(r)
	if reason != nil {
		return conditional.Mark{} // nothing in a stream has it
	}
	return digestOf(m.Subject, m.Header, m.Data).Mark()
}

// Portion implements [conditional.Stream]: an atomic batch; else all messages leave before the first is answered, but
// for a replicated stream.
//
// There the chain of ids would be a danger: each replica holds it against the last id by itself, and does not know that
// id after it has caught up (nats-server 2.15, stream.go: processCatchupMsg sets lseq and not lmsgId). It takes the
// mismatch for a critical write error and leaves the stream permanently; two of them, and no one leads it any more. The
// expected sequence is looked at by the leader alone.
func (s *stream) Portion() int {
	switch batches, slow := s.learned(); {
	case batches:
		return batchRecords >> s.smaller
	case slow:
		return 1
	}
	return 0
}

func (s *stream) learned() (batches, slow bool) {
	s.driver.mu.Lock()
	defer s.driver.mu.Unlock()
	return s.batches, s.slow
}

// Append implements [conditional.Stream]. It sends all messages: as one batch, or each expecting the one before it.
// Then it reads the answers until one is missing or refused: what was sent behind that one is not written.
func (s *stream) Append(ctx context.Context, end int64, records []*sink.Record) conditional.Answer {
	nc, err := s.driver.connection(ctx)
	if err == nil {
		err = s.listen(nc)
	}
	if err != nil {
		return conditional.Answer{Verdict: sink.NotWritten, Err: err, Pause: true}
	}
	ctx, cancel := context.WithTimeout(ctx, s.driver.config.RequestTimeout)
	defer cancel()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	s.waiting.Store(&stop)
	defer s.waiting.Store(nil)
	s.attempt++
	switch batches, slow := s.learned(); {
	case len(records) == 1:
	case batches:
		return s.appendBatch(ctx, nc, end, records)
	case slow: // it has changed since it was asked for the portion
		return conditional.Answer{Verdict: sink.NotWritten}
	}
	sent, reason, err := s.send(nc, end, records)
	answer := s.collect(ctx, end, sent)
	switch {
	case len(answer.Offsets) < sent:
		answer.Guilty = len(answer.Offsets)
		s.explain(&answer, err)
	case reason != nil: // all before it are written
		answer.Verdict, answer.Guilty, answer.Reason = sink.Refused, sent, reason
	case err != nil:
		answer = conditional.Answer{Offsets: answer.Offsets, Verdict: sink.NotWritten, Err: err}
	default:
		answer.Verdict = sink.Accepted
	}
	return answer
}

// reply returns the prefix of an attempt's replies.
func (s *stream) reply() string { return s.inbox + "." + strconv.FormatUint(s.attempt, 10) + "." }

// listen subscribes to the acknowledgements on the connection.
func (s *stream) listen(nc *client.Conn) error {
	if s.made == nc {
		return nil
	}
	s.inbox = client.NewInbox()
	acks, err := nc.SubscribeSync(s.inbox + ".>")
	if err == nil {
		err = acks.SetPendingLimits(-1, -1)
	}
	if err != nil {
		return fmt.Errorf("listen for acknowledgements: %w", err)
	}
	s.acks, s.made = acks, nc
	return nil
}

// send sends the records up to one that can be no message.
func (s *stream) send(nc *client.Conn, end int64, records []*sink.Record) (sent int, reason *sink.Reason, err error) {
	id, before, reply := nuid.Next(), "", s.reply()
	for i, r := range records {
		m, reason := message(r)
		if reason != nil {
			return i, reason, nil
		}
		own := id + strconv.Itoa(i)
		m.Header[msgIDHeader] = []string{own}
		m.Header[expectStreamHeader] = []string{s.name}
		m.Header[expectSeqHeader] = []string{strconv.FormatInt(end+int64(i), 10)}
		if before != "" {
			m.Header[expectIDHeader] = []string{before}
		}
		before = own
		m.Reply = reply + strconv.Itoa(i)
		if err := nc.PublishMsg(m); err != nil {
			return i, nil, fmt.Errorf("publish: %w", err)
		}
	}
	return len(records), nil, nil
}

// collect reads the answers to the messages that were sent. Without a verdict all are written that have an offset.
func (s *stream) collect(ctx context.Context, end int64, sent int) (a conditional.Answer) {
	acked := make([]bool, sent)
	for next := 0; next < sent; {
		i, said, err := s.answer(ctx, sent)
		var answers *apiError
		switch {
		case errors.As(err, &answers) && i > next: // those before it may be written, and their answers are on their way
			sent, acked = i, acked[:i]
			a.Err = err
			continue
		case errors.As(err, &answers):
			a.Err = err
			return a
		case err != nil:
			a.Verdict, a.Err = sink.Unknown, err
			return a
		case said.Duplicate || said.Seq != end+int64(i)+1:
			a.Verdict, a.Moved = sink.NotWritten, true
			a.Err = fmt.Errorf("message %d was acknowledged at sequence %d, want %d", i, said.Seq, end+int64(i)+1)
			return a
		}
		for acked[i] = true; next < sent && acked[next]; next++ {
			a.Offsets = append(a.Offsets, end+int64(next)+1)
		}
	}
	return a
}

// answer is the next answer to one of so many messages of this attempt. An [apiError] is the answer.
func (s *stream) answer(ctx context.Context, messages int) (i int, said ack, err error) {
	for prefix := s.reply(); ; {
		m, err := s.acks.NextMsgWithContext(ctx)
		if err != nil {
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			return 0, said, fmt.Errorf("wait for the acknowledgement of stream %s: %w", s.name, err)
		}
		number, ours := strings.CutPrefix(m.Subject, prefix)
		i, err := strconv.Atoi(number)
		if !ours || err != nil || i >= messages {
			continue // of an earlier attempt
		}
		if len(m.Data) > 0 {
			if err := json.Unmarshal(m.Data, &said); err != nil {
				return i, said, fmt.Errorf("read an acknowledgement: %w", err)
			}
		}
		return i, said, answered(m, said.Error)
	}
}

// explain fills in what the missing answer, or the refusal of the guilty message, means for the rest.
func (s *stream) explain(a *conditional.Answer, err error) {
	if a.Moved || a.Verdict == sink.Unknown {
		var denied *topicError // of this stream or of another on the connection
		a.Pause = errors.As(a.Err, &denied)
		if err != nil {
			a.Err = errors.Join(err, a.Err)
		}
		return
	}
	var api *apiError
	if !errors.As(a.Err, &api) {
		a.Verdict = sink.Unknown
		return
	}
	m := meaningOf(api.ErrCode)
	a.Code, a.Verdict = m.name, sink.NotWritten
	switch {
	case m.moved:
		a.Moved = true
	case m.class != "":
		a.Verdict = sink.Refused
		a.Reason = &sink.Reason{Class: m.class, Code: m.name, Text: fmt.Sprintf("stream %s: %s", s.name, api.Description)}
	default:
		a.Pause = true
		if m.relearn {
			s.driver.stale(s)
		}
	}
}

// window is how many messages are asked for at once when a stream is read back.
const window = 256

// Behind implements [conditional.Stream]. The leader is asked for each message by its sequence, because a replica may
// not have the last ones yet. Those that are gone (deleted, consumed) are passed over.
func (s *stream) Behind(ctx context.Context, end int64, each func(conditional.Found)) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, s.driver.config.RequestTimeout)
	defer cancel()
	nc, err := s.driver.connection(ctx)
	if err != nil {
		return end, err
	}
	info, err := askStream(ctx, nc, s.name)
	if err != nil {
		return end, err
	}
	last := info.State.LastSeq
	if last < end {
		return last, conditional.ErrWentBack
	}
	inbox := client.NewInbox()
	answers, err := nc.SubscribeSync(inbox + ".>")
	if err != nil {
		return end, fmt.Errorf("listen for messages: %w", err)
	}
	defer func() { _ = answers.Unsubscribe() }()
	for end = max(end, info.State.FirstSeq-1); end < last; {
		upTo := min(end+window, last)
		found, err := s.readRange(ctx, nc, answers, inbox, end, upTo)
		for _, m := range found {
			if m == nil {
				continue
			}
			headers, failed := headersOf(m.Headers)
			if failed != nil {
				headers = nil // not one of ours
			}
			each(digestOf(m.Subject, headers, m.Data).Found(m.Seq))
		}
		if found == nil {
			return end, err
		}
		end = upTo
	}
	return last, nil
}

// readRange asks for the messages behind from up to upTo; nil stands for one that is gone.
func (s *stream) readRange(ctx context.Context, nc *client.Conn, answers *client.Subscription, inbox string, from,
	upTo int64) ([]*storedMessage, error) {
	subject := "STREAM.MSG.GET." + s.name
	for seq := from + 1; seq <= upTo; seq++ {
		request := fmt.Appendf(nil, `{"seq":%d}`, seq)
		if err := nc.PublishRequest(api+subject, inbox+"."+strconv.FormatInt(seq, 10), request); err != nil {
			return nil, fmt.Errorf("ask for message %d of stream %s: %w", seq, s.name, err)
		}
	}
	found := make([]*storedMessage, upTo-from)
	for range found {
		m, err := answers.NextMsgWithContext(ctx)
		if err != nil {
			return nil, fmt.Errorf("read stream %s back: %w", s.name, err)
		}
		var answer struct {
			Message *storedMessage `json:"message"`
		}
		seq, err := strconv.ParseInt(strings.TrimPrefix(m.Subject, inbox+"."), 10, 64)
		if err != nil || seq <= from || seq > upTo {
			return nil, fmt.Errorf("read stream %s back: got an answer on %s", s.name, m.Subject)
		}
		if err := read(m, subject, &answer); err != nil && !isCode(err, codeMessageNotFound) {
			return nil, err
		}
		found[seq-from-1] = answer.Message
	}
	return found, nil
}
