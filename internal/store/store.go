// Package store is the door to the SQL side: the journal, the parked events, the dead letters, the relay's state and
// the outbox table. It knows nothing of Kafka, and takes no decision: it says what is recorded, and records.
//
// A [Store] combines the packages below it, each with its own contract: internal/catalog (what is in the
// database), internal/lease (whose the slot is), internal/table (reading the outbox), internal/outcome (writing what
// became of events), internal/queue (parked events in order), internal/desk (people) and internal/upkeep (marks,
// deletions, pruning). They meet in internal/db, which runs statements, and speak the words of internal/record.
//
// # Invariants
//
//   - S1 What Settle reports as committed survives a crash of the server: synchronous_commit is on, or higher when the
//     server's default is higher.
//   - S2 Dead letters and state are written under the epoch that this Store took over, or not at all ([ErrFenced]).
//     Journal rows need no fence: those of a relay that lost the slot are true statements about the topic.
//   - S3 Replays are harmless: settling an id again changes nothing.
//   - S4 No call waits for a lock on the outbox table except the ones that say so; none waits longer than its
//     lock_timeout.
//   - S5 Any call may run on any connection of a transaction pooler: it leaves nothing in the session.
//
// Tested on a real Postgres, room by room: the rooms' tests stand here, at the door.
package store

import (
	"context"
	"fmt"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/catalog"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/db"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/desk"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/lease"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/outcome"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/queue"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/record"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/table"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/upkeep"
)

// Store is a small pool of connections and what was learned about the outbox. All methods may be called from any
// goroutine.
type Store struct {
	db *db.DB

	*catalog.Catalog
	*lease.Lease
	*table.Reader
	*outcome.Writer
	*queue.Queue
	*desk.Desk
	*upkeep.Upkeep
}

// Open checks the configuration and prepares the pool; the first call connects.
func Open(ctx context.Context, c Config) (*Store, error) {
	d, err := db.Open(ctx, c)
	if err != nil {
		return nil, err
	}
	return over(d), nil
}

func over(d *db.DB) *Store {
	return &Store{
		db: d, Catalog: catalog.New(d), Lease: lease.New(d), Reader: table.New(d), Writer: outcome.New(d),
		Queue: queue.New(d), Desk: desk.New(d), Upkeep: upkeep.New(d),
	}
}

// Of is a Store for another outbox of the slot, a source of its own, whose number is known after Register. It has the
// connections, the epoch and the relay's tables of this one, which is to be closed after it; the names of its columns
// are the same. What is the slot's as a whole is asked of this one: TakeOver, SaveProgress, CleanStop, the topics.
func (s *Store) Of(schema, table string) *Store { return over(s.db.Of(schema, table)) }

// Named is a Store for the outbox of the slot by that name, schema or schema.table, as it was registered; it may be
// dropped since. Without a name, or where the slot has one outbox, it is this Store. [ErrNoOutbox]: there is none by
// the name.
func (s *Store) Named(ctx context.Context, name string) (*Store, error) {
	if name == "" {
		return s, nil
	}
	named, err := s.db.Named(ctx, name)
	if err != nil || named == s.db {
		return s, err
	}
	return over(named), nil
}

// NeedOne is the error of what can be asked of one outbox only, if this Store is that of several: see Named.
func (s *Store) NeedOne() error { return s.db.NeedOne() }

// EachTable are Stores for the tables that there are: this one, or those that the pattern of several outboxes chooses,
// which have no numbers yet. [ErrNoOutbox]: the pattern chooses none.
func (s *Store) EachTable(ctx context.Context) ([]*Store, error) {
	if !s.db.Pattern() {
		return []*Store{s}, nil
	}
	list, err := s.Outboxes(ctx, outbox.Pattern{Schema: s.db.Names.OutboxSchema, Table: s.db.Names.OutboxTable}, "")
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%w: no table fits outbox.tables (%s); create one, or correct the pattern", ErrNoOutbox,
			s.db.Config.Table)
	}
	all := make([]*Store, len(list))
	for i, n := range list {
		all[i] = s.Of(n.Schema, n.Name)
	}
	return all, nil
}

// Table is the outbox's name, of several the pattern.
func (s *Store) Table() Named {
	return Named{Schema: s.db.Names.OutboxSchema, Name: s.db.Names.OutboxTable}
}

// EventSource is the number that events of this outbox carry: 0 unless it is one of several.
func (s *Store) EventSource() int32 { return s.db.EventSource() }

// FormOf gives this Store the form of another one's table, which was read, and differs from its own in its name only:
// see [Named].Form. It returns what the outbox is by that.
func (s *Store) FormOf(other *Store, oid uint32) Outbox {
	s.db.FormOf(other.db, oid)
	return s.db.TableSeen().Outbox
}

// Know notes the number of an outbox of the slot, as it is registered.
func (s *Store) Know(st *State) { s.db.SetSource(st.Source, st.TableOID) }

// Cover has this Store answer for more outboxes, which Of has made and Register has numbered, what it is asked of all
// that is parked: which lanes there are and are due, how many events and how old. Their lanes carry their numbers.
func (s *Store) Cover(members []*Store) {
	all := make([]*db.DB, len(members))
	for i, m := range members {
		all[i] = m.db
	}
	s.db.Cover(all)
}

// Close waits for calls that are running and closes all connections.
func (s *Store) Close() { s.db.Close() }

// Locate tells where each event is, in words: by what the tables know, and by what a relay had in flight before they
// are asked, so that an event that settles in the meantime is seen in one of the two.
func (s *Store) Locate(ctx context.Context, ids []string, inFlight map[string]FoundInTransit) ([]Found, error) {
	found, err := s.Find(ctx, ids)
	if err != nil {
		return nil, err
	}
	slot, err := s.Slot(ctx)
	if err != nil {
		return nil, err
	}
	spooled, err := s.Spooled(ctx)
	if err != nil {
		return nil, err
	}
	record.Locate(found, inFlight, slot, spooled)
	return found, nil
}
