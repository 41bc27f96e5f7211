package record

import "github.com/cdc-relay/cdc-relay/internal/outbox"

// Sighting is an event of the stream that the tables may have recorded already.
type Sighting struct {
	Source    int32  // of the event
	ID        []byte // text form, as pgoutput gives it
	Position  outbox.Position
	Committed int64 // by the server's clock, microseconds since the Unix epoch; 0: unknown
}

// SourceOf is the source of a sighting.
func SourceOf(s *Sighting) int32 { return s.Source }

// Aside is a row whose id is that of a parked event or a dead letter.
type Aside struct{ Topic, ID string }

// Recognition is the tables' answer about a [Sighting].
type Recognition uint8

// What can be said of an event.
const (
	Unrecorded Recognition = iota // its id is not recorded
	Recorded                      // the event is journaled, parked, or a dead letter
	Reused                        // its id is recorded, of another event that had it before
	Unsure                        // its id is recorded, but the event is unknown
)
