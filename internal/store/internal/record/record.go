// Package record defines the store's types: records of events, slots and requests, and lists for people. It runs no
// statement; all that it knows of Postgres is in its errors.
//
// Tested at the door, by package store.
package record

import (
	"errors"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/access/secret"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// ErrFenced reports that another relay took the slot over since this one did; what was to be written has not been.
var ErrFenced = errors.New("another relay took over this slot: nothing was written")

// ErrOtherTable reports that the outbox's name belongs to another table than the one whose rows the slot streams: none
// of its rows were read, marked or deleted.
var ErrOtherTable = errors.New("the outbox is another table than the one that this slot was used for; none of its " +
	"rows were read or changed (cdc-relay check shows what to do)")

// ErrLeaseLost reports that the slot is not, or no longer, held by the replication connection that TakeOver was told
// of.
var ErrLeaseLost = errors.New("the replication slot is not held by this relay's connection")

// ErrIDTaken reports that another event with the same id is parked, or an open dead letter, and keeps its row.
var ErrIDTaken = errors.New("another event with this id is parked or a dead letter: replay or discard that one")

// What becomes of the outbox row after its event is journaled.
const (
	Mark   = "mark"
	Keep   = "keep"
	Delete = "delete"
)

// Config says where the tables are and how the outbox looks.
type Config struct {
	URL      string
	Password *secret.Source // asked at each connect; nil = the one in URL
	PoolSize int            // most connections; 0 = 4
	Schema   string         // of the relay's own tables; "" = public
	Slot     string

	Table        string // the outbox: schema.table, exactly as the catalog spells it; quotes only where a name has a dot
	Several      bool   // Table is a pattern: * in the schema stands for any characters, and each table is an outbox
	Columns      outbox.Columns
	Retention    time.Duration // how long a published row stays; 0: forever, or with Delete not at all
	HoldDead     bool          // dead letters with Holds keep what is parked behind them from being due
	AfterPublish string        // Mark, Keep or Delete; "" = Mark

	MarkSet       string // assignments; "" = published_at = now()
	DeadSet       string // assignments for rows of dead letters, with {last_error}, {attempts}, {error_class}; "" = none
	RetrySet      string // the same for the rows of events that failed and are tried again
	PublishedWhen string // condition on a row; "" = published_at IS NOT NULL if there is such a column, else false
	OrderBy       string // expressions; "" = seq if there is such a column, else created_at, id
	TimeZone      string // of columns of type timestamp without time zone; "" = the database's
	Lanes         string // a fingerprint of the templates of topic and key, which SaveProgress and CleanStop note
	MaxRow        int64  // bytes of a payload, and of headers, beyond which they are not read; 0: there is no bound
	DLQTable      string // schema.table; "" = <Schema>.<outbox>_dlq
}
