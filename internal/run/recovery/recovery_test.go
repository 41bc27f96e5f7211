package recovery

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/rs/zerolog"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/sink"
)

var us = outbox.Source("7", 1, 3)

// ours are the origins of one relay with two outboxes, 3 and 4.
func ours() Origins {
	o := NewOrigins("7", 1)
	o.Add(0, 3, []string{"5"})
	o.Add(4, 4, nil)
	return o
}

// shelf is a topic that can be read back, and a journal. Every third event is journaled already, and every fourth one
// of the others is parked.
type shelf struct {
	records int
	settled map[string]store.Published
	twice   int
	parked  int64
}

func (s *shelf) id(n int) string { return fmt.Sprintf("event-%d", n) }

func (s *shelf) number(id []byte) (n int) {
	_, _ = fmt.Sscanf(string(id), "event-%d", &n)
	return n
}

func (s *shelf) Tail(_ context.Context, _ sink.TailQuery, each func(sink.TailRecord) error) error {
	for n := range s.records {
		rec := sink.TailRecord{Partition: int32(n % 7), Offset: int64(n),
			Headers: [sink.TailHeaders][]byte{[]byte(s.id(n)), []byte(us)}}
		if err := each(rec); err != nil {
			return err
		}
	}
	return nil
}

func (s *shelf) Recognize(_ context.Context, events []store.Sighting) ([]store.Recognition, error) {
	found := make([]store.Recognition, len(events))
	for i, e := range events {
		if _, recorded := s.settled[string(e.ID)]; recorded || s.number(e.ID)%3 == 0 {
			found[i] = store.Recorded
		}
	}
	return found, nil
}

func (s *shelf) Settle(_ context.Context, published []store.Published, _ []store.Dead) error {
	for _, p := range published {
		if _, before := s.settled[string(p.ID)]; before {
			s.twice++
		}
		s.settled[string(p.ID)] = p
	}
	return nil
}

func (s *shelf) ParkedAmong(_ context.Context, events []store.Sighting) (map[int]store.Lane, error) {
	lanes := map[int]store.Lane{}
	for i, e := range events {
		if n := s.number(e.ID); n%3 != 0 && n%4 == 0 {
			lanes[i] = store.Lane{}
		}
	}
	return lanes, nil
}

func (s *shelf) Portions(context.Context, []store.Ask, int, int) ([]store.Portion, error) {
	return nil, nil
}

func (s *shelf) SettleRetried(ctx context.Context, published []store.Published) error {
	return s.Settle(ctx, published, nil)
}

func (s *shelf) Parked() int64          { return s.parked }
func (s *shelf) AddParked(events int64) { s.parked += events }
func (s *shelf) Revisit(...store.Lane)  {}

// More records than are compared at once are read back, and not a whole number of such portions. Breaks it catches: one
// of a portion that is passed over, which would be sent again; one that is settled twice, or at another place. Seen to
// fail with the last record of each portion dropped, and with the last portion not settled.
func TestEveryRecordReadBackIsSettledOnce(t *testing.T) {
	s := &shelf{records: 3*batchSize + 17, settled: map[string]store.Published{}, parked: 10_000}
	scan := Scan{Tailer: s, Tables: s, Queue: s, Logger: zerolog.Nop(), Origins: ours(), Sent: &Sent{}}
	if err := scan.Run(t.Context(), []store.TopicTail{{Topic: "t"}}); err != nil {
		t.Fatal(err)
	}
	want, wrong := 0, []int(nil)
	for n := range s.records {
		if n%3 == 0 {
			continue
		}
		want++
		p, found := s.settled[s.id(n)]
		if !found || p.Topic != "t" || p.Partition != int32(n%7) || p.Offset != int64(n) {
			wrong = append(wrong, n)
		}
	}
	if len(wrong) > 0 {
		t.Errorf("%d events are not settled, or not where they are, the first is number %d", len(wrong), wrong[0])
	}
	if scan.Read != s.records || scan.Found != want || len(s.settled) != want || s.twice != 0 {
		t.Errorf("got %d read, %d found, %d settled, %d of them twice; want %d, %d, %d and 0", scan.Read, scan.Found,
			len(s.settled), s.twice, s.records, want, want)
	}
}

// late is a topic that no one can read now.
type late struct {
	*shelf
	can  bool
	told []sink.TailQuery // what was deferred
}

func (*late) Tail(context.Context, sink.TailQuery, func(sink.TailRecord) error) error {
	return errors.New("it has no leader")
}

func (l *late) Defer(_ context.Context, q sink.TailQuery) bool {
	l.told = append(l.told, q)
	return l.can
}

// A driver that looks by itself before it sends is told where, and nothing is counted as possibly doubled then. Seen to
// fail with the topic counted all the same, and with a driver that cannot not counted.
func TestTopicThatIsReadLaterIsNotCounted(t *testing.T) {
	for can, want := range map[bool]int{true: 0, false: 1} {
		l := &late{shelf: &shelf{settled: map[string]store.Published{}}, can: can}
		scan := Scan{Tailer: l, Tables: l, Queue: l, Logger: zerolog.Nop(), Origins: ours(), Sent: &Sent{}}
		tail := store.TopicTail{Topic: "t", From: map[int32]int64{0: 7}}
		if err := scan.Run(t.Context(), []store.TopicTail{tail}); err != nil || scan.Unread != want {
			t.Errorf("a driver that can: %v: got %d topics unread, %v; want %d", can, scan.Unread, err, want)
		}
		if len(l.told) != 1 || l.told[0].Topic != "t" || l.told[0].From[0] != 7 {
			t.Errorf("deferred: got %+v, want topic t from 7 on", l.told)
		}
	}
}

// What Postgres refuses ends the scan: sending on would send everything again that was not recorded. Seen to fail with
// the error only counted, as an unread topic is.
func TestRefusedJournalEndsTheScan(t *testing.T) {
	s := &refusing{&shelf{records: batchSize + 1, settled: map[string]store.Published{}}}
	scan := Scan{Tailer: s, Tables: s, Queue: s, Logger: zerolog.Nop(), Origins: ours(), Sent: &Sent{}}
	if err := scan.Run(t.Context(), []store.TopicTail{{Topic: "t"}, {Topic: "u"}}); !errors.Is(err, errRefused) {
		t.Errorf("got %v, want %v", err, errRefused)
	}
}

var errRefused = errors.New("refused")

type refusing struct{ *shelf }

func (r *refusing) Settle(context.Context, []store.Published, []store.Dead) error { return errRefused }
