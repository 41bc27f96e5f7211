package redis

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/cdc-relay/cdc-relay/sink"
)

var _ sink.Browser = (*Streams)(nil)

// Extent implements [sink.Browser]. Since version 7 Redis counts the entries that a stream ever had, and remembers the
// newest one that was deleted by its id; before that it does not tell whether any was.
func (d *Streams) Extent(ctx context.Context, topic string) (e sink.Extent, err error) {
	x, err := d.extent(ctx, topic)
	if err != nil || !x.exists {
		return e, err
	}
	e = sink.Extent{Exists: true, First: x.first, Next: x.last + 1, Deleted: x.deleted}
	switch {
	case !x.counted:
		e.Deleted = x.last
		e.Note = fmt.Sprintf("stream %s: Redis before version 7 does not record deletions: what is not "+
			"there is called missing, or expired, and never lost", topic)
	case x.deleted > 0:
		e.Note = fmt.Sprintf("stream %s: entries up to %s were deleted by their id (XDEL), as consumers may do with what "+
			"they have handled: what is missing up to there is not called lost, and --repair does not publish it. If no "+
			"consumer deletes on purpose, declare so with XSETID %s %s ENTRIESADDED %d MAXDELETEDID 0-0, and verify again",
			topic, idOf(x.deleted), strconv.Quote(topic), idOf(x.last), x.added)
	}
	return e, nil
}

// extent holds XINFO's answer about a stream.
type extent struct {
	exists      bool
	first, last int64 // offsets: of the first entry, 0 if none was ever removed; of the last one that it ever had
	counted     bool  // what follows is known
	added       int64 // entries that it ever had
	length      int64
	deleted     int64 // offset of the newest entry that was deleted by its id, 0: none
}

func (d *Streams) extent(ctx context.Context, topic string) (x extent, err error) {
	s, _ := d.streamOf(topic)
	answer, err := d.Do(ctx, 2, "XINFO", "STREAM", topic).Slice()
	if err != nil {
		if strings.Contains(err.Error(), "no such key") {
			return x, nil
		}
		return x, s.blame(err)
	}
	said := map[string]any{}
	for i := 0; i+1 < len(answer); i += 2 {
		said[text(answer[i])] = answer[i+1]
	}
	if x.last, err = offsetOf(text(said["last-generated-id"])); err != nil {
		return x, err
	}
	x.exists, x.first = true, x.last+1
	if first, _ := said["first-entry"].([]any); len(first) > 0 {
		if x.first, err = offsetOf(text(first[0])); err != nil {
			return x, err
		}
	}
	if x.added, x.counted = said["entries-added"].(int64); !x.counted {
		return x, nil
	}
	x.length, _ = said["length"].(int64)
	if x.added == x.length {
		x.first = 0 // nothing was ever removed
	}
	x.deleted, err = offsetOf(text(said["max-deleted-entry-id"]))
	return x, err
}

// lost is the most entries that were added from the query's start on and are not there any more.
func (d *Streams) lost(ctx context.Context, q sink.TailQuery) (int64, error) {
	x, err := d.extent(ctx, q.Topic)
	switch from := beginOf(q); {
	case err != nil || !x.exists || x.last < from:
		return 0, err
	case !x.counted:
		return sink.HowManyIsUnknown, nil
	case x.first > from || x.deleted >= from:
		return x.added - x.length, nil
	}
	return 0, nil
}

// Browse implements [sink.Browser].
func (d *Streams) Browse(ctx context.Context, topic string, from, before int64, each func(sink.Stored) error) error {
	s, _ := d.streamOf(topic)
	for from = max(from, 1); from < before; {
		entries, err := s.read(ctx, from, before-1)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if err := each(e.stored()); err != nil {
				return err
			}
			from = e.offset + 1
		}
		if len(entries) < readRecords {
			break
		}
	}
	return nil
}

// stored converts an entry of [appendFields] back to its record.
func (e entry) stored() sink.Stored {
	s := sink.Stored{Offset: e.offset}
	for i := 0; i+1 < len(e.fields); i += 2 {
		switch value := []byte(text(e.fields[i+1])); text(e.fields[i]) {
		case keyField:
			s.Key = value
		case payloadField:
			s.Value = value
		}
	}
	s.Headers = func(yield func(string, []byte) bool) {
		for i := 0; i+1 < len(e.fields); i += 2 {
			switch name := text(e.fields[i]); name {
			case keyField, payloadField, tombstoneField:
			default:
				if plain, was := strings.CutPrefix(name, renamed); was && fieldName(plain) == name {
					name = plain
				}
				if !yield(name, []byte(text(e.fields[i+1]))) {
					return
				}
			}
		}
	}
	return s
}
