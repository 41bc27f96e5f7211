// Package db runs the statements of the store: a small pool of connections, the settings of one transaction, the fence,
// the names of tables, and the shape of the outbox that statements are filled in with. It decides nothing about events.
//
// Every call works through a transaction pooler. It is one transaction, mostly in one round trip; what it needs of
// settings is set for that transaction only, and no prepared statement outlives it. Any call may run on any connection.
//
// Tested at the door, by package store, on a real Postgres.
package db

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/internal/access/login"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/record"
)

const (
	defaultPoolSize = 4
	connectTimeout  = 5 * time.Second
	idleTimeout     = 5 * time.Minute
)

// DB is a small pool of connections and what was learned about the outbox. All methods may be called from any
// goroutine.
type DB struct {
	Config record.Config
	Names  Names
	Pool   *pgxpool.Pool
	shared *shared
	member bool // made by Of

	source atomic.Int32            // 0 until State or Register
	oid    atomic.Uint32           // of the table that the source is of; 0 until then
	table  atomic.Pointer[Table]   // nil until the outbox is read
	covers atomic.Pointer[[]int32] // the sources of several outboxes; nil: it is of one
	mu     sync.Mutex              // of Cover
}

// shared is the same for all outboxes of a slot.
type shared struct {
	epoch    atomic.Int64           // 0 until TakeOver
	encoding atomic.Pointer[string] // of the database; nil before the first connection
}

// Open checks the configuration and prepares the pool; the first call connects.
func Open(ctx context.Context, c record.Config) (*DB, error) {
	s := &DB{Config: c, shared: new(shared)}
	if err := s.setNames(); err != nil {
		return nil, err
	}
	pc, err := pgxpool.ParseConfig(c.URL)
	if err != nil {
		return nil, fmt.Errorf("read postgres.url: %w", err)
	}
	pc.MaxConns = int32(defaultPoolSize)
	if c.PoolSize > 0 {
		pc.MaxConns = int32(c.PoolSize)
	}
	pc.MinConns = 0
	pc.MaxConnIdleTime = idleTimeout
	cc := pc.ConnConfig
	cc.DefaultQueryExecMode = pgx.QueryExecModeExec // one round trip, nothing prepared that outlives it
	cc.StatementCacheCapacity = 0
	cc.DescriptionCacheCapacity = 0
	if cc.ConnectTimeout == 0 {
		cc.ConnectTimeout = connectTimeout
	}
	login.OnPrimary(&cc.Config, c.URL)
	cc.DialFunc = newDialer(cc.ConnectTimeout).DialContext
	cc.RuntimeParams["client_encoding"] = "UTF8"
	pc.BeforeConnect, pc.AfterConnect = s.beforeConnect, s.afterConnect
	if s.Pool, err = pgxpool.NewWithConfig(ctx, pc); err != nil {
		return nil, fmt.Errorf("open the connection pool: %w", err)
	}
	return s, nil
}

// Of is a DB for another outbox of the slot: one more source, which shares connections, epoch, dead letters and all of
// the relay's own tables with the others. It needs no Close.
func (s *DB) Of(schema, table string) *DB {
	d := &DB{Config: s.Config, Names: s.Names, Pool: s.Pool, shared: s.shared, member: true}
	d.Config.Table = Quote(schema, table)
	d.Names.setOutbox(s.Config.Schema, schema, table)
	return d
}

// Close waits for calls that are running and closes all connections.
func (s *DB) Close() { s.Pool.Close() }

// beforeConnect gives each new connection secret and certificates as they are now, and the name of the epoch that it
// belongs to.
func (s *DB) beforeConnect(ctx context.Context, cc *pgx.ConnConfig) error {
	cc.RuntimeParams["application_name"] = applicationName(s.Config.Slot, s.shared.epoch.Load())
	return login.Renew(ctx, &cc.Config, s.Config.URL, s.Config.Password)
}

// applicationName is "cdc-relay/<epoch>/<8 hex digits of the slot's name>", at most 39 bytes; Postgres keeps 63.
func applicationName(slot string, epoch int64) string {
	return "cdc-relay/" + strconv.FormatInt(epoch, 10) + "/" + SlotHash(slot)
}

// SlotHash is 8 hex digits that stand for the slot's name.
func SlotHash(slot string) string {
	h := fnv.New32a()
	h.Write([]byte(slot))
	return fmt.Sprintf("%08x", h.Sum32())
}

// TableAndSource returns the table's shape, read once, and the number of (slot, table).
func (s *DB) TableAndSource(ctx context.Context) (*Table, int32, error) {
	if s.Pattern() && !s.Several() {
		if err := s.gather(ctx); err != nil {
			return nil, 0, err
		}
	}
	o, err := s.Table(ctx)
	if err != nil {
		return nil, 0, err
	}
	source := s.source.Load()
	if source == 0 {
		if _, err := s.State(ctx); err != nil {
			return nil, 0, err
		}
		if source = s.source.Load(); source == 0 {
			return nil, 0, fmt.Errorf("slot %q is not registered: no row in %s", s.Config.Slot, s.Names.State)
		}
	}
	return o, source, nil
}

// OwnTable is Table once it is known which table the slot's source is of, if there is one.
func (s *DB) OwnTable(ctx context.Context) (*Table, error) {
	o, err := s.Table(ctx)
	if err == nil && s.oid.Load() == 0 {
		_, err = s.State(ctx)
	}
	return o, err
}

// StateKey is the key of the source's row in the table of states. The slot's own has the slot's name; one of several
// outboxes has its number behind that. No slot's name has a colon.
func (s *DB) StateKey() string { return s.KeyOf(s.source.Load()) }

// KeyOf is StateKey by a number that is not noted yet.
func (s *DB) KeyOf(source int32) string {
	if !s.member {
		return s.Config.Slot
	}
	return fmt.Sprintf("%s:%d", s.Config.Slot, source)
}

// Cover adds members, which Of has made and which have numbers, to the outboxes that this DB is of: what is asked of
// all that is parked is asked of theirs. Their tables have the same form; it is not to be asked for what reads or
// changes one.
func (s *DB) Cover(members []*DB) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var of []int32
	if known := s.covers.Load(); known != nil {
		of = *known // readers of this one do not see what is appended
	}
	for _, m := range members {
		s.table.CompareAndSwap(nil, m.TableSeen())
		if source := m.Source(); !slices.Contains(of, source) {
			of = append(of, source)
		}
	}
	s.covers.Store(&of)
}

// Pattern reports whether this DB is that of several outboxes, whose names a pattern chooses.
func (s *DB) Pattern() bool { return s.Config.Several && !s.member }

// NeedOne is the error of what can be asked of one outbox only, if this DB is that of several.
func (s *DB) NeedOne() error {
	if !s.Pattern() && !s.Several() {
		return nil
	}
	return fmt.Errorf("%w: slot %s has several outboxes, whose events may have the same ids: name one, with --outbox, or "+
		"with outbox in the API", record.ErrFilter, s.Config.Slot)
}

// Named is this DB, or that of one of several outboxes as it is registered, by its schema or by schema.table: quoted as
// in the configuration, or as lists show it.
func (s *DB) Named(ctx context.Context, name string) (*DB, error) {
	schema, table, err := splitTable(name, "")
	if !utf8.ValidString(name) {
		err = errors.New("it is not UTF-8")
	} else if s.Pattern() && !strings.ContainsRune(name, 0) {
		switch d, is, missing := s.registered(ctx, name, name+"."+s.Names.OutboxTable); {
		case missing != nil:
			return nil, missing
		case is:
			return d, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%w: outbox %q: %w", record.ErrFilter, name, err)
	}
	if schema == "" {
		schema, table = table, s.Names.OutboxTable
	}
	if s.Pattern() {
		d, is, err := s.registered(ctx, schema+"."+table)
		if err == nil && !is {
			err = fmt.Errorf("%w: slot %q has none by the name of %s.%s", record.ErrNoOutbox, s.Config.Slot, schema, table)
		}
		return d, err
	}
	if schema != s.Names.OutboxSchema || table != s.Names.OutboxTable {
		return nil, fmt.Errorf("%w: slot %q has only %s.%s, and not %s.%s", record.ErrNoOutbox, s.Config.Slot,
			s.Names.OutboxSchema, s.Names.OutboxTable, schema, table)
	}
	return s, nil
}

// Several reports whether Cover was called.
func (s *DB) Several() bool { return s.covers.Load() != nil }

// Mine makes a statement that reads rows of the source $1 one of all outboxes that this DB covers, and gives $1.
func (s *DB) Mine(text string, source int32) (string, any) {
	of := s.covers.Load()
	if of == nil {
		return text, source
	}
	return strings.ReplaceAll(text, "source = $1", "source = ANY ($1::integer[])"), *of
}

// HasView reports whether there is a view of the outbox: those of several have none.
func (s *DB) HasView() bool { return !s.member && !s.Config.Several }

// MemberName is schema.table of one of several outboxes, else "".
func (s *DB) MemberName() string {
	if !s.member {
		return ""
	}
	return s.Names.OutboxSchema + "." + s.Names.OutboxTable
}

// EventSource is the source of the events that come from this outbox's tables: 0 unless it is one of several.
func (s *DB) EventSource() int32 {
	if !s.member {
		return 0
	}
	return s.source.Load()
}

// FormOf gives this DB the form of another one's table, which differs from its own in its name only.
func (s *DB) FormOf(other *DB, oid uint32) {
	o := *other.TableSeen()
	o.OID, o.OIDs, o.Schema, o.Name = oid, []uint32{oid}, s.Names.OutboxSchema, s.Names.OutboxTable
	s.table.Store(&o)
}

// SetSource notes the number of (slot, table), and the table's.
func (s *DB) SetSource(source int32, table uint32) {
	s.oid.Store(table)
	s.source.Store(source)
}

// Source is the number of (slot, table), 0 before it is known.
func (s *DB) Source() int32 { return s.source.Load() }

// Epoch is the epoch that this relay took over, 0 before that.
func (s *DB) Epoch() int64 { return s.shared.epoch.Load() }

// TookOver notes the epoch, and names the pool's connections after it: those made from now on carry it, those in use
// are closed when they come back.
func (s *DB) TookOver(epoch int64) {
	s.shared.epoch.Store(epoch)
	s.Pool.Reset()
}

// TableSeen is nil before the outbox was read.
func (s *DB) TableSeen() *Table { return s.table.Load() }

// Table is the outbox as it was first read.
func (s *DB) Table(ctx context.Context) (*Table, error) {
	if o := s.table.Load(); o != nil {
		return o, nil
	}
	return s.ReadTable(ctx)
}
