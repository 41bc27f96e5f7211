package inbox

import (
	"context"
	"time"

	"github.com/cdc-relay/cdc-relay/inbox/internal/lanes"
	"github.com/cdc-relay/cdc-relay/inbox/internal/ledger"
)

// feed is where a session's records come from: a group of Kafka's, or the readers of a [Source]. It assigns partitions
// to the engine and takes them away, each of them by these rules:
//
//  1. Offsets are read first (ledger.Starts), then parked lanes, then begin, then the records from there on, in the
//     order of their offsets.
//  2. A partition that goes is revoked, released and dropped. One that is lost is dropped, and what runs is cut off.
//  3. session.heartbeat is when this process was last told that its partitions are its own.
type feed interface {
	dial() error
	run(ctx context.Context) // until the context ends; then the partitions stay as they are, for the session to release
	// tell hands on how far partitions are decided, which the database has noted.
	tell(ctx context.Context, next map[lanes.Place]int64) error
	leave()
	system() string // the broker's kind, as OpenTelemetry calls it
}

func (s *session) newFeed() feed {
	if s.c.config.Source != nil {
		return newReaders(s, s.c.config.Source)
	}
	return &kafka{session: s}
}

// brokerTimeout is for one request of the session's own, to a broker or to the database.
const brokerTimeout = 10 * time.Second

// parkedLanes are those of partitions that begin. Read them after the offsets.
func (s *session) parkedLanes(ctx context.Context, all []ledger.Place) (map[lanes.Place][]lanes.Name, error) {
	parked, err := s.ledger.ParkedLanes(ctx, all)
	if err != nil {
		return nil, err
	}
	names := map[lanes.Place][]lanes.Name{}
	for _, ref := range parked {
		at := lanes.Place(ref.Place)
		names[at] = append(names[at], lanes.Name(ref.Lane))
	}
	return names, nil
}

// begin begins a partition. startless: it was never read, and where its log starts is not known.
func (s *session) begin(at lanes.Place, next, wrote int64, parked []lanes.Name, unclean, startless bool) {
	s.mu.Lock()
	delete(s.careful, at)
	s.wrote[at] = wrote
	delete(s.gone, at)
	delete(s.told, at)
	if delete(s.startless, at); startless {
		s.startless[at] = true
	}
	if unclean {
		// What was in flight when the process died is among the first new events that its memory can have held.
		s.careful[at] = &caution{left: s.c.config.MaxEvents}
	}
	s.mu.Unlock()
	s.engine.Assign(at, next, parked)
}

// handOver ends the work on partitions in good order: what runs may end within patience, then their offsets are noted.
func (s *session) handOver(gone []lanes.Place, patience time.Duration) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for _, idle := range s.engine.Revoke(gone, s.gapTime()) {
		select {
		case <-idle:
			continue
		case <-timer.C:
			timer.Reset(0)
		}
		s.cancelOf(set(gone), errLost)
		select {
		case <-idle: // a transaction that is cut off ends at once
		case <-time.After(stuckWait):
			s.abandonOf(set(gone))
		}
	}
	ctx, cancel := context.WithTimeout(s.hard, brokerTimeout)
	defer cancel()
	if err := s.release(ctx, gone); err != nil {
		s.c.config.Log.Warn("inbox: noting the offsets of revoked partitions", "consumer", s.c.config.Name, "error", err)
	}
	s.engine.Drop(gone)
}

// lose drops partitions that others may have already: what runs is cut off, and none of it counts.
func (s *session) lose(gone []lanes.Place) {
	s.engine.Drop(gone)
	s.cancelOf(set(gone), errLost)
}

func (s *session) isClosing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closing
}

func set(all []lanes.Place) map[lanes.Place]bool {
	m := make(map[lanes.Place]bool, len(all))
	for _, p := range all {
		m[p] = true
	}
	return m
}
