package outbox

// Lane is the unit of ordering: the events of one source that go to one topic with one key.
type Lane struct {
	Source int32 // which of several outboxes; 0: the only one
	Topic  string
	Key    []byte // nil: one event alone
}

// Identity names an event: an id is unique in its source.
type Identity struct {
	Source int32
	ID     string
}

// Identity returns the event's identity, with a copy of its id.
func (e *Event) Identity() Identity { return Identity{e.Source, string(e.ID)} }
