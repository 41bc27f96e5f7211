package record

// Memory holds the records of one source: journal, parked events, dead letters and people's decisions.
type Memory struct {
	Source    int32
	Slot      string // that it was recorded under
	TableOID  uint32
	TableName string // schema.table
	SystemID  string // "" where the slot stands for another source by now
	Timeline  int32
	Recorded  bool  // there is anything in it: journal rows, parked events or dead letters
	SlotThere bool  // this server has a slot of that name
	SlotPID   int32 // the walsender that holds it; 0 = none
}

// Home is where a memory is to belong, and how that is done.
type Home struct {
	From     string // the slot whose memory is meant; "" = the only one that there is
	SystemID string // of this server, by IDENTIFY_SYSTEM
	Timeline int32
	Restored bool // the database went back to an earlier state, so that the topics hold more than is recorded
	Dry      bool // tell what would be carried over, and change nothing
}

// Adoption describes the adopted records, or those that a dry run would adopt.
type Adoption struct {
	From     Memory
	TableOID uint32 // the table that the memory belongs to from now on
	AtHome   bool   // it belongs to this slot, server and table already: nothing was changed

	Parked, Spooled, DeadLetters, Discarded int64
}

// AdoptError says why no memory was adopted, and what a person has to decide or do first.
type AdoptError struct{ Reason, Remedy string }

func (e *AdoptError) Error() string { return e.Reason + ": " + e.Remedy }
