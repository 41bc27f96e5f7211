package outbox

// State is the publish state of one outbox row, as the status view shows it.
type State string

// The states of contract "status view".
const (
	Pending   State = "pending"   // committed, not yet published
	Published State = "published" // acked by the broker and journaled
	Retrying  State = "retrying"  // parked, a further attempt is due
	Blocked   State = "blocked"   // parked behind an earlier event of its lane
	Failed    State = "failed"    // a dead letter
)

// ErrorClass says what a failure means for the event that met it.
type ErrorClass string

// The classes that are stored with parked events and dead letters.
const (
	Transient ErrorClass = "transient" // may succeed later
	Permanent ErrorClass = "permanent" // the reason is in the event itself and stays
	BlockedBy ErrorClass = "blocked"   // not tried: an earlier event of the lane is parked
)
