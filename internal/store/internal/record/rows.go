package record

import (
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// AuditRange bounds the rows of an audit; nil and empty mean no bound.
type AuditRange struct {
	FromID, ToID string     // of the outbox's ids, both inclusive
	Since, Until *time.Time // of created_at, since inclusive
}

// AuditRow is a row of the outbox with what the relay's tables say of it.
type AuditRow struct {
	ID      string
	Payload []byte // as the stream carries it; nil = SQL NULL
	// its place in the order of outbox.order_by; equal numbers say nothing of the order among them
	Order                   int64
	Journaled, Parked, Dead bool   // more than one: the first holds
	Published               bool   // by the row itself
	Topic                   string // where the journal has it; empty when it does not say
	Partition               int32
	Offset                  int64
	JournaledAt             time.Time // when it was published, by the journal
	Made                    *int64    // created_at, in microseconds since the Unix epoch; nil = NULL, or no time
	Columns                 []*string // those asked for
}

// IDs are those that are given.
func (r AuditRange) IDs() []string {
	return slices.DeleteFunc([]string{r.FromID, r.ToID}, func(id string) bool { return id == "" })
}

// CatchUpRow is an outbox row that a catch-up publishes.
type CatchUpRow struct {
	Row    uint64 // from 1, in the order of outbox.order_by
	Event  outbox.Event
	Reused bool // the journal has its id, of another event
	Listed bool // no one wrote it since the catch-up listed it
}

// AuditState is how far the reconciler has come.
type AuditState struct {
	Horizon time.Time // rows of transactions that began before it were found recorded
	SweptAt time.Time // when the whole table was looked at; zero = not yet
	Ranged  bool      // an index leads to the rows since a time; else only the whole table can be read
	Blocks  int64     // size of the table, of its largest partition if it has any
}

// Running are the transactions that are not over.
type Running struct {
	Now      time.Time // of the server; every transaction that began before it is over or among the others
	Sessions []string  // virtual transaction ids of this database, those that have not written yet included
	Prepared []string  // transaction ids of prepared ones of this database
}
