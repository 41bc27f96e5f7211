package redisstream

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/cdc-relay/cdc-relay/sink"
)

var _ sink.Browser = (*Driver)(nil)

// Extent implements [sink.Browser]. Since version 7 Redis counts the entries that a stream ever had, and remembers the
// newest one that was deleted by its id; before that it does not tell whether any was.
func (d *Driver) Extent(ctx context.Context, topic string) (e sink.Extent, err error) {
	s, _ := d.streamOf(topic)
	answer, err := d.Do(ctx, 2, "XINFO", "STREAM", topic).Slice()
	if err != nil {
		if strings.Contains(err.Error(), "no such key") {
			return e, nil
		}
		return e, s.blame(err)
	}
	said := map[string]any{}
	for i := 0; i+1 < len(answer); i += 2 {
		said[text(answer[i])] = answer[i+1]
	}
	last, err := offsetOf(text(said["last-generated-id"]))
	if err != nil {
		return e, err
	}
	e = sink.Extent{Exists: true, First: last + 1, Next: last + 1}
	if first, _ := said["first-entry"].([]any); len(first) > 0 {
		if e.First, err = offsetOf(text(first[0])); err != nil {
			return e, err
		}
	}
	added, counted := said["entries-added"]
	if !counted {
		e.Deleted = last
		e.Note = fmt.Sprintf("stream %s: Redis before version 7 does not tell whether entries were deleted: what is not "+
			"there is called missing, or expired, and never lost", topic)
		return e, nil
	}
	if text(added) == text(said["length"]) {
		e.First = 0 // nothing was ever removed
	}
	deleted := text(said["max-deleted-entry-id"])
	if e.Deleted, err = offsetOf(deleted); err == nil && e.Deleted > 0 {
		e.Note = fmt.Sprintf("stream %s: entries up to %s were deleted by their id (XDEL), as consumers may do with what "+
			"they have handled: what is missing up to there is not called lost, and --repair does not publish it. If nobody "+
			"deletes on purpose, say so with XSETID %s %s ENTRIESADDED %s MAXDELETEDID 0-0, and verify again", topic, deleted,
			strconv.Quote(topic), idOf(last), text(added))
	}
	return e, err
}

// Browse implements [sink.Browser].
func (d *Driver) Browse(ctx context.Context, topic string, from, before int64, each func(sink.Stored) error) error {
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

// stored is the record of which [appendFields] has made the entry.
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
