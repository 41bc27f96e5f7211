// Package store is the only one that speaks SQL to the journal, the parked events, the dead letters, the relay's state
// and the outbox table. It knows nothing of Kafka, and takes no decision: it says what is recorded, and records.
//
// Every method works through a transaction pooler. A call is one transaction, mostly in one round trip; what it needs of
// settings is set for that transaction only, and no prepared statement outlives it. Any call may run on any connection.
//
// # Invariants
//
//   - S1 What Settle reports as committed survives a crash of the server: synchronous_commit is on, or higher when the
//     server's default is higher.
//   - S2 Dead letters and state are written under the epoch that this Store took over, or not at all ([ErrFenced]).
//     Journal rows need no fence: those of a relay that lost the slot are true statements about the topic.
//   - S3 Replays are harmless: settling an id again changes nothing.
//   - S4 No call waits for a lock on the outbox table except the ones that say so; none waits longer than its lock_timeout.
package store

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/outbox"
)

const (
	defaultPoolSize = 4
	connectTimeout  = 5 * time.Second
	idleTimeout     = 5 * time.Minute
)

// ErrFenced says that another relay took the slot over since this one did; what was to be written has not been.
var ErrFenced = errors.New("another relay took over this slot: nothing was written")

// ErrLeaseLost says that the slot is not, or no longer, held by the replication connection that TakeOver was told of.
var ErrLeaseLost = errors.New("the replication slot is not held by this relay's connection")

// What becomes of the outbox row after its event is journaled.
const (
	Mark   = "mark"
	Keep   = "keep"
	Delete = "delete"
)

// Config says where the tables are and how the outbox looks.
type Config struct {
	URL      string
	Password func() (string, error) // asked at each connect; nil = the one in URL
	PoolSize int                    // most connections; 0 = 4
	Schema   string                 // of the relay's own tables; "" = public
	Slot     string

	Table        string // the outbox: schema.table, exactly as the catalog spells it; quotes only where a name has a dot
	Columns      outbox.Columns
	Retention    time.Duration // how long a published row stays; 0: for ever, or with Delete not at all
	HoldDead     bool          // dead letters with Holds keep what is parked behind them from being due
	AfterPublish string        // Mark, Keep or Delete; "" = Mark

	MarkSet       string // assignments; "" = published_at = now()
	PublishedWhen string // condition on a row; "" = published_at IS NOT NULL if there is such a column, else false
	OrderBy       string // expressions; "" = seq if there is such a column, else created_at, id
	DLQTable      string // schema.table; "" = <Schema>.<outbox>_dlq
}

// Store is a small pool of connections and what was learned about the outbox. All methods may be called from any
// goroutine.
type Store struct {
	config Config
	names  names
	pool   *pgxpool.Pool

	epoch  atomic.Int64           // 0 until TakeOver
	source atomic.Int32           // 0 until State or Register
	table  atomic.Pointer[Outbox] // nil until Outbox

	copyBuffers chan *copyBuffer // for reuse
}

// Open checks the configuration and prepares the pool; the first call connects.
func Open(ctx context.Context, c Config) (*Store, error) {
	s := &Store{config: c, copyBuffers: make(chan *copyBuffer, copyBuffersKept)}
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
	cc.DialFunc = newDialer(cc.ConnectTimeout).DialContext
	cc.RuntimeParams["client_encoding"] = "UTF8"
	pc.BeforeConnect = s.beforeConnect
	if s.pool, err = pgxpool.NewWithConfig(ctx, pc); err != nil {
		return nil, fmt.Errorf("open the connection pool: %w", err)
	}
	return s, nil
}

// Close waits for calls that are running and closes all connections.
func (s *Store) Close() { s.pool.Close() }

// beforeConnect gives each new connection the secret as it is now and the name of the epoch that it belongs to.
func (s *Store) beforeConnect(_ context.Context, cc *pgx.ConnConfig) error {
	cc.RuntimeParams["application_name"] = applicationName(s.config.Slot, s.epoch.Load())
	if s.config.Password == nil {
		return nil
	}
	password, err := s.config.Password()
	if err != nil {
		return fmt.Errorf("read the Postgres password: %w", err)
	}
	cc.Password = password
	return nil
}

// applicationName is "cdc-relay/<epoch>/<8 hex digits of the slot's name>", at most 39 bytes; Postgres keeps 63.
func applicationName(slot string, epoch int64) string {
	return "cdc-relay/" + strconv.FormatInt(epoch, 10) + "/" + slotHash(slot)
}

func slotHash(slot string) string {
	h := fnv.New32a()
	h.Write([]byte(slot))
	return fmt.Sprintf("%08x", h.Sum32())
}

// outboxAndSource are what most calls need: the table's shape, learned once, and the number of (slot, table).
func (s *Store) outboxAndSource(ctx context.Context) (*Outbox, int32, error) {
	o, err := s.knownOutbox(ctx)
	if err != nil {
		return nil, 0, err
	}
	source := s.source.Load()
	if source == 0 {
		if _, err := s.State(ctx); err != nil {
			return nil, 0, err
		}
		if source = s.source.Load(); source == 0 {
			return nil, 0, fmt.Errorf("slot %q is not registered: no row in %s", s.config.Slot, s.names.state)
		}
	}
	return o, source, nil
}

func (s *Store) knownOutbox(ctx context.Context) (*Outbox, error) {
	if o := s.table.Load(); o != nil {
		return o, nil
	}
	o, err := s.Outbox(ctx)
	return &o, err
}
