package redis

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/cdc-relay/cdc-relay/internal/conditional"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/redisconn"
	"github.com/cdc-relay/cdc-relay/sink"
)

//go:embed append.lua
var appendEntries string

var appendScript = redis.NewScript(appendEntries)

//go:embed keep_stream.lua
var keepStreamText string

const (
	// scriptRecords is how many entries one script adds: it holds the server's only thread for about 1 ms.
	scriptRecords = 200
	// readRecords is how many entries are asked for at once when a stream is read back.
	readRecords = 1000
)

// stream is one stream as package conditional sees it.
type stream struct {
	driver *Streams
	key    string
	log    *conditional.Log
}

// End implements [conditional.Stream].
func (s *stream) End(ctx context.Context) (int64, error) {
	answer, err := s.driver.Do(ctx, 2, "XINFO", "STREAM", s.key).Slice()
	if err != nil {
		if strings.Contains(err.Error(), "no such key") {
			return 0, nil
		}
		return 0, s.blame(err)
	}
	for i := 0; i+1 < len(answer); i += 2 {
		if text(answer[i]) == "last-generated-id" {
			return offsetOf(text(answer[i+1]))
		}
	}
	return 0, errors.New("XINFO STREAM named no last-generated-id")
}

// Mark implements [conditional.Stream].
func (s *stream) Mark(r *sink.Record) conditional.Mark { return digestOf(appendFields(nil, r)).Mark() }

// Portion implements [conditional.Stream].
func (s *stream) Portion() int { return scriptRecords }

// Append implements [conditional.Stream], in one script.
func (s *stream) Append(ctx context.Context, end int64, records []*sink.Record) (a conditional.Answer) {
	args, n, reason := s.compose(end, records)
	if reason != nil {
		return conditional.RefuseAt(n, reason, func() conditional.Answer { return s.Append(ctx, end, records[:n]) })
	}
	first, moved, err := s.run(ctx, end, args)
	switch {
	case moved:
		a.Verdict, a.Moved, a.Err = sink.NotWritten, true, err
	case err != nil:
		s.driver.Failed(&a, "stream "+s.key, s.grants(), err)
	default:
		a.Verdict = sink.Accepted
		for i := range records {
			a.Offsets = append(a.Offsets, first+int64(i))
		}
	}
	return a
}

// Keeps implements [conditional.Keeper].
func (s *stream) Keeps() bool { return s.driver.Keeps() }

// Keep implements [conditional.Keeper].
func (s *stream) Keep(ctx context.Context, end int64) error {
	if err := s.driver.Keep(ctx, keepStreamText, s.key, idOf(end)); err != nil {
		return s.blame(err)
	}
	return nil
}

// mostHeaders is as many as a script can name in one call: Lua's stack holds 8,000 strings (LUAI_MAXCSTACK), and each
// header is two.
const mostHeaders = 3500

// compose makes the script's arguments, up to a record that cannot be an entry.
func (s *stream) compose(end int64, records []*sink.Record) (args []any, n int, reason *sink.Reason) {
	large := func(r *sink.Record) bool { return r.Headers.Len() > mostHeaders }
	if n := slices.IndexFunc(records, large); n >= 0 {
		return nil, n, &sink.Reason{Class: outbox.Permanent, Code: "TOO_MANY_HEADERS", Text: fmt.Sprintf(
			"it has %d headers, and a script of Redis can append at most %d", records[n].Headers.Len(), mostHeaders)}
	}
	args = append(make([]any, 0, 2+16*len(records)), idOf(end), s.driver.config.MaxLength)
	n, reason = sink.Compose(records, func(_ int, r *sink.Record) {
		at := len(args)
		args = appendFields(append(args, 0), r)
		args[at] = len(args) - at - 1
	})
	return args, n, reason
}

// run runs the script.
func (s *stream) run(ctx context.Context, end int64, args []any) (first int64, moved bool, err error) {
	answer, err := appendScript.Run(ctx, s.driver.Client, []string{s.key}, args...).Slice()
	if err != nil {
		return 0, false, err
	}
	if len(answer) != 2 {
		return 0, false, fmt.Errorf("the script answered %v", answer)
	}
	if done, _ := answer[0].(int64); done == 0 {
		return 0, true, fmt.Errorf("stream %s ends at %s, not at %s", s.key, answer[1], idOf(end))
	}
	first, err = offsetOf(text(answer[1]))
	return first, false, err
}

// blame makes the error say whose it is.
func (s *stream) blame(err error) error { return s.driver.Blame("stream "+s.key, s.grants(), err) }

// grants are the keys that the user must be allowed.
func (s *stream) grants() string { return "'~" + s.key + "' " }

// Behind implements [conditional.Stream].
func (s *stream) Behind(ctx context.Context, end int64, each func(conditional.Found)) (int64, error) {
	last, err := s.End(ctx)
	if err != nil {
		return end, err
	}
	if last < end {
		return last, conditional.ErrWentBack
	}
	for end < last {
		entries, err := s.read(ctx, end+1, last)
		if err != nil {
			return end, err
		}
		for _, e := range entries {
			each(digestOf(e.fields).Found(e.offset))
			end = e.offset
		}
		if len(entries) < readRecords {
			break
		}
	}
	return last, nil
}

// entry is an entry of a stream.
type entry struct {
	offset int64
	fields []any // names and values
}

// read reads up to readRecords entries. It takes the answer apart itself, because fields may repeat.
func (s *stream) read(ctx context.Context, from, upTo int64) (entries []entry, err error) {
	answer, err := s.driver.Do(ctx, 1, "XRANGE", s.key, idOf(from), idOf(upTo), "COUNT", readRecords).Slice()
	if err != nil {
		return nil, s.blame(err)
	}
	for _, item := range answer {
		pair, _ := item.([]any)
		if len(pair) != 2 {
			return nil, fmt.Errorf("XRANGE answered %v", item)
		}
		offset, err := offsetOf(text(pair[0]))
		if err != nil {
			return nil, err
		}
		fields, _ := pair[1].([]any)
		entries = append(entries, entry{offset, fields})
	}
	return entries, nil
}

// Tail implements [sink.Tailer]. It leaves the stream's log at the end up to which it has read.
func (d *Streams) Tail(ctx context.Context, q sink.TailQuery, each func(sink.TailRecord) error) error {
	s, _ := d.streamOf(q.Topic)
	last, err := s.End(ctx)
	if err != nil {
		return redisconn.Passing(err)
	}
	if s.Keeps() && last >= beginOf(q) { // what is read may be the master's alone
		if err := s.Keep(ctx, last); err != nil {
			return redisconn.Passing(err)
		}
	}
	for from := beginOf(q); from <= last; {
		entries, err := s.read(ctx, from, last)
		if err != nil {
			return redisconn.Passing(err)
		}
		for _, e := range entries {
			if err := each(tailRecord(e, q.Headers)); err != nil {
				return err
			}
			from = e.offset + 1
		}
		if len(entries) < readRecords {
			break
		}
	}
	if q.Gone != nil {
		lost, err := d.lost(ctx, q)
		if err != nil {
			return redisconn.Passing(err)
		}
		q.Lost(lost)
	}
	if err := s.log.Start(ctx, last); err != nil {
		return redisconn.Passing(err)
	}
	return nil
}

// Defer implements [sink.Deferrer].
func (d *Streams) Defer(ctx context.Context, q sink.TailQuery) bool {
	s, _ := d.streamOf(q.Topic)
	return s.log.Defer(ctx, beginOf(q)-1) == nil
}

// beginOf is the first offset that is asked for, at least 1.
func beginOf(q sink.TailQuery) int64 {
	from, begins := q.From[0]
	if !begins && !q.Since.IsZero() {
		from = q.Since.UnixMilli() << seqBits
	}
	return max(from, 1)
}

func tailRecord(e entry, headers [sink.TailHeaders]string) sink.TailRecord {
	rec := sink.TailRecord{Offset: e.offset}
	for i := 0; i+1 < len(e.fields); i += 2 {
		if text(e.fields[i]) == keyField {
			rec.Key = []byte(text(e.fields[i+1]))
		}
		for n, header := range headers {
			if header != "" && text(e.fields[i]) == fieldName(header) {
				rec.Headers[n] = []byte(text(e.fields[i+1]))
			}
		}
	}
	return rec
}
