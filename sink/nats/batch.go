package nats

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	client "github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"github.com/cdc-relay/cdc-relay/internal/conditional"
	"github.com/cdc-relay/cdc-relay/sink"
)

// batchRecords is the most messages of an atomic batch, as the servers have it by default (max_batch_size).
const batchRecords = 1000

// appendBatch sends the records as an atomic batch (since nats-server 2.12): all of them are written, or none. Each
// message is answered, the last one for the whole.
func (s *stream) appendBatch(ctx context.Context, nc *client.Conn, end int64, records []*sink.Record) (
	a conditional.Answer,
) {
	messages := make([]*client.Msg, len(records))
	id, reply := nuid.Next(), s.reply()
	for i, r := range records {
		m, reason := message(r)
		if reason != nil { // it could not be known before
			return conditional.Answer{Verdict: sink.Refused, Guilty: i, Reason: reason}
		}
		m.Header[batchIDHeader] = []string{id}
		m.Header[batchSeqHeader] = []string{strconv.Itoa(i + 1)}
		m.Header[expectStreamHeader] = []string{s.name}
		m.Reply = reply + strconv.Itoa(i)
		messages[i] = m
	}
	last := len(messages) - 1
	messages[0].Header[expectSeqHeader] = []string{strconv.FormatInt(end, 10)}
	messages[last].Header[batchCommitHeader] = []string{"1"}
	for i, m := range messages {
		if err := nc.PublishMsg(m); err != nil {
			if a = (conditional.Answer{Verdict: sink.NotWritten, Err: fmt.Errorf("publish: %w", err)}); i == last {
				a.Verdict = sink.Unknown
			}
			return a
		}
	}
	for {
		i, said, err := s.answer(ctx, len(messages))
		var answers *apiError
		switch {
		case errors.As(err, &answers) && answers.ErrCode == codeBatchTooLarge && batchRecords>>s.smaller > 1:
			s.smaller++
			return conditional.Answer{Verdict: sink.NotWritten}
		case errors.As(err, &answers):
			a.Err, a.Guilty = err, i
			s.explain(&a, nil)
			return a
		case err != nil:
			a.Verdict, a.Err = sink.Unknown, err
			s.explain(&a, nil)
			return a
		case i < last:
			continue
		case said.Seq != end+int64(len(records)):
			a.Verdict, a.Moved = sink.NotWritten, true
			a.Err = fmt.Errorf("a batch was acknowledged up to sequence %d, want %d", said.Seq, end+int64(len(records)))
			return a
		}
		a.Verdict = sink.Accepted
		for i := range records {
			a.Offsets = append(a.Offsets, end+1+int64(i))
		}
		return a
	}
}
