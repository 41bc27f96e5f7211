package inbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-relay/cdc-relay/inbox"
)

// wire is all that ties a consumer to the world: cut it, and the process is gone; hold it, and it is frozen, with a
// transaction open on the server.
type wire struct {
	mu    sync.Mutex
	conns map[net.Conn]struct{}
	hosts []string // our ends of all that were opened
	isCut bool
	gate  chan struct{} // closed: open
}

func newWire() *wire {
	w := &wire{conns: map[net.Conn]struct{}{}, gate: make(chan struct{})}
	close(w.gate)
	return w
}

func (w *wire) dial(ctx context.Context, network, address string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.isCut {
		_ = conn.Close()
		return nil, errors.New("the process is gone")
	}
	w.conns[conn] = struct{}{}
	w.hosts = append(w.hosts, conn.LocalAddr().String())
	return &held{conn, w}, nil
}

func (w *wire) wait() {
	w.mu.Lock()
	gate := w.gate
	w.mu.Unlock()
	<-gate
}

func (w *wire) hold() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gate = make(chan struct{})
}

func (w *wire) release() {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-w.gate:
	default:
		close(w.gate)
	}
}

func (w *wire) cut() {
	w.mu.Lock()
	w.isCut = true
	for conn := range w.conns {
		_ = conn.Close()
	}
	w.mu.Unlock()
	w.release()
}

type held struct {
	net.Conn
	w *wire
}

func (h *held) Read(b []byte) (int, error) {
	n, err := h.Conn.Read(b)
	h.w.wait()
	return n, err
}

func (h *held) Write(b []byte) (int, error) {
	h.w.wait()
	return h.Conn.Write(b)
}

func (h *held) Close() error {
	h.w.mu.Lock()
	delete(h.w.conns, h.Conn)
	h.w.mu.Unlock()
	return h.Conn.Close()
}

// world is one seed's: a schema with an inbox and a table of effects, a topic, the consumers, and what is planned for
// each event.
type world struct {
	rng     *rand.Rand
	admin   *pgxpool.Pool
	brokers []string
	schema  string
	topic   string
	client  *kgo.Client
	members []*member
	gone    []string // the ends of killed members' connections
	started int
	said    []string // what was done
	log     protocol // of that, and of all members

	mu    sync.Mutex
	plan  map[int]string // by seq: permanent, transient, outage
	tries map[int]int
}

// member is a consumer with a wire of its own.
type member struct {
	number   int
	wire     *wire
	pool     *pgxpool.Pool
	consumer *inbox.Consumer
	end      context.CancelFunc
	done     chan error
}

func (w *world) start(ctx context.Context) error {
	w.started++
	m := &member{number: w.started, wire: newWire(), done: make(chan error, 1)}
	config := w.admin.Config().Copy()
	config.MaxConns = 3
	config.ConnConfig.DialFunc = m.wire.dial
	// The server is known by when it was started: here that is a row, which changes when the database is set back.
	config.ConnConfig.RuntimeParams["search_path"] = w.schema + ", pg_catalog"
	var err error
	if m.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return err
	}
	c, err := inbox.New(m.pool, inbox.Config{
		Name: "billing", Group: w.schema, Brokers: w.brokers, Topics: []string{w.topic}, Schema: w.schema,
		SkipMigration: true, Workers: 2, IdleTimeout: 400 * time.Millisecond, Grace: 300 * time.Millisecond,
		Retry: inbox.Retry{MaxAttempts: 6, InitialBackoff: time.Millisecond, MaxBackoff: 8 * time.Millisecond, ParkAfter: 2},
		Log:   slog.New(slog.NewTextHandler(&w.log, &slog.HandlerOptions{Level: slog.LevelDebug})).With("member", m.number),
		// The stand-in counts a fetch session's epoch when it answers, Kafka when it is asked. If a connection goes in
		// between, the two can disagree permanently on what is fetched, and none of it says so.
		Client: []kgo.Opt{kgo.DisableFetchSessions(), kgo.Dialer(m.wire.dial), kgo.SessionTimeout(500 * time.Millisecond),
			kgo.HeartbeatInterval(100 * time.Millisecond), kgo.RebalanceTimeout(6 * time.Second)},
	})
	if err != nil {
		return err
	}
	m.consumer = c
	inbox.On(c, "OrderPlaced", w.handle)
	running, end := context.WithCancel(context.WithoutCancel(ctx))
	m.end = end
	go func() { m.done <- c.Run(running) }()
	w.members = append(w.members, m)
	return nil
}

// handle does as it is planned for the event.
func (w *world) handle(ctx context.Context, tx pgx.Tx, e inbox.Event[payload]) error {
	w.mu.Lock()
	w.tries[e.Payload.Seq]++
	plan, tries := w.plan[e.Payload.Seq], w.tries[e.Payload.Seq]
	w.mu.Unlock()
	switch {
	case plan == "permanent":
		return inbox.Permanent(errors.New("no such customer"))
	case plan == "transient" && tries <= 4:
		return errors.New("not now")
	case plan == "outage" && tries <= 2:
		return inbox.Outage(errors.New("away"))
	}
	return apply(ctx, tx, e)
}

// takeOff ends a member: in good order, or as one that is killed.
func (w *world) takeOff(n int, kill bool) error {
	m := w.members[n]
	w.members = append(w.members[:n:n], w.members[n+1:]...)
	if kill {
		m.wire.cut()
	}
	m.wire.release()
	m.end()
	err := <-m.done
	m.pool.Close()
	if kill {
		w.gone = append(w.gone, m.wire.hosts...)
	}
	return err
}

// groups describes the consumers' group.
func (w *world) groups(ctx context.Context) ([]kmsg.DescribeGroupsResponseGroup, error) {
	describe := kmsg.NewPtrDescribeGroupsRequest()
	describe.Groups = []string{w.schema}
	answer, err := describe.RequestWith(ctx, w.client)
	if err != nil {
		return nil, err
	}
	return answer.Groups, nil
}

// expire has the group forget members that were killed. Kafka does that after the session's time-out; the stand-in does
// not where one was killed between its join and its sync, and leaves it its partitions permanently.
func (w *world) expire(ctx context.Context) error {
	groups, err := w.groups(ctx)
	if err != nil {
		return err
	}
	for _, g := range groups {
		leave := kmsg.NewPtrLeaveGroupRequest()
		leave.Group = g.Group
		for _, m := range g.Members {
			if slices.Contains(w.gone, m.ClientHost) {
				leave.Members = append(leave.Members, kmsg.LeaveGroupRequestMember{MemberID: m.MemberID})
			}
		}
		if len(leave.Members) > 0 {
			if _, err := leave.RequestWith(ctx, w.client); err != nil {
				return err
			}
		}
	}
	return nil
}

// inboxTables are reset by a set-back, beside the effects.
var inboxTables = []string{"inbox_consumer", "inbox_source", "inbox_event", "inbox_parked", "inbox_dead",
	"inbox_offset", "inbox_suspect", "effect"}

// make creates the schema.
func (w *world) make(ctx context.Context) error {
	return w.exec(ctx, fmt.Sprintf(`CREATE TABLE %[1]s.effect (n bigint GENERATED ALWAYS AS IDENTITY, key text, event text,
			seq integer, partition integer, process integer);
		CREATE TABLE %[1]s.server (at timestamptz); INSERT INTO %[1]s.server VALUES ('2026-01-01');
		CREATE FUNCTION %[1]s.pg_postmaster_start_time() RETURNS timestamptz LANGUAGE plpgsql AS
			$$ BEGIN RETURN (SELECT at FROM %[1]s.server); END $$;
		CREATE SCHEMA %[1]s_older`, w.schema))
}

func (w *world) exec(ctx context.Context, sql string) error { return execAgain(ctx, w.admin, sql) }

// execAgain runs statements as one transaction. A transaction with another lock order may win: then it is tried again.
func execAgain(ctx context.Context, on execer, sql string) error {
	for {
		_, err := on.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol)
		if pg := new(pgconn.PgError); !errors.As(err, &pg) || pg.Code != "40P01" {
			return err
		}
		if _, err := on.Exec(ctx, "ROLLBACK"); err != nil {
			return err
		}
	}
}

// execer is a connection or a pool of them.
type execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// backUp copies the database as it is now.
func (w *world) backUp(ctx context.Context) error {
	sql := "BEGIN ISOLATION LEVEL REPEATABLE READ; "
	for _, table := range inboxTables {
		sql += fmt.Sprintf("DROP TABLE IF EXISTS %[1]s_older.%[2]s; CREATE TABLE %[1]s_older.%[2]s AS TABLE %[1]s.%[2]s; ",
			w.schema, table)
	}
	return w.exec(ctx, sql+"COMMIT")
}

// setBack brings the copy back, as another server, or into the tables of the same one. A process that has
// looked which server it is holds a lock on that row's table until the transaction's end, so none is under way, as none
// survives a restore.
func (w *world) setBack(ctx context.Context, sameServer bool) error {
	empty := "TRUNCATE"
	if sameServer {
		empty = "DELETE FROM"
	}
	sql := fmt.Sprintf("BEGIN; LOCK TABLE %[1]s.inbox_consumer IN ACCESS EXCLUSIVE MODE; "+
		"LOCK TABLE %[1]s.server IN ACCESS EXCLUSIVE MODE; ", w.schema)
	for _, table := range inboxTables {
		sql += fmt.Sprintf(`%[3]s %[1]s.%[2]s; INSERT INTO %[1]s.%[2]s OVERRIDING SYSTEM VALUE
			SELECT * FROM %[1]s_older.%[2]s; `, w.schema, table, empty)
	}
	if !sameServer {
		sql += "UPDATE " + w.schema + ".server SET at = at + interval '1 s'; "
	}
	sql += "COMMIT"
	return w.exec(ctx, sql)
}
