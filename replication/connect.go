package replication

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/internal/access/login"
	"github.com/cdc-relay/cdc-relay/internal/access/secret"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// Config configures what to stream and how to keep the connection alive.
type Config struct {
	URL             string         // direct, not through a pooler; replication=database is added
	Password        *secret.Source // asked at each connect; nil: the URL's
	Slot            string         // [a-z0-9_]{1,63}
	Publication     string
	ApplicationName string
	StatusInterval  time.Duration // a status is sent at least this often; at most a quarter of WALSenderTimeout
	// of this stream: silence for longer than this ends the session on either side
	WALSenderTimeout time.Duration
	// bytes of a row's values beyond which some are skipped while it is read; 0: none is
	MaxRow   int
	OnNotice func(notice NoticeText) // server warnings inside the stream; called from Run's goroutine
	// how old what is read is, see socket; nil: not known. Called from Run's goroutine
	Behind func() time.Duration
	// ReadInterval is the time between two looks at the stream, so that one look brings what came in the meantime; 0: each
	// message is read when it comes. Looks are closer together while 32 KiB or more would come between two.
	ReadInterval time.Duration
}

// NoDecodingError reports that the server writes too little into its WAL to decode rows from: wal_level is not logical.
type NoDecodingError struct{ Said string }

func (e *NoDecodingError) Error() string {
	return fmt.Sprintf("the server cannot decode its WAL, because wal_level is not logical (server: %s)", e.Said)
}

// EncodingError reports that the server cannot convert text of the stream into UTF-8: every attempt ends at the same
// row.
type EncodingError struct {
	Encoding string // of the database
	Said     string // with the bytes
	Where    string // the server's context: the slot, and the position of the change
}

func (e *EncodingError) Error() string {
	return fmt.Sprintf("the database's encoding is %s, and the stream has text that does not exist in UTF-8 (the server "+
		"said: %s; %s)", e.Encoding, e.Said, e.Where)
}

// PublicationMissingError reports that the server decodes WAL of a time when the publication did not exist.
type PublicationMissingError struct{ Publication, Said string }

func (e *PublicationMissingError) Error() string {
	return fmt.Sprintf("publication %q does not exist at the slot's position (server: %s)", e.Publication, e.Said)
}

var firstNumber, lastNumber = regexp.MustCompile(`^\d+`), regexp.MustCompile(`\d+$`)

var slotName = regexp.MustCompile(`^[a-z0-9_]{1,63}$`)

// validate guards what pglogrepl pastes into commands unquoted.
func (c Config) validate() error {
	if !slotName.MatchString(c.Slot) {
		return fmt.Errorf("slot name %q: want 1 to 63 of a-z, 0-9 and _", c.Slot)
	}
	if c.Publication == "" || strings.ContainsRune(c.Publication, 0) {
		return fmt.Errorf("publication name %q: must not be empty", c.Publication)
	}
	if c.StatusInterval <= 0 || c.WALSenderTimeout < 4*c.StatusInterval {
		return fmt.Errorf("status interval %v must be positive and at most a quarter of the wal_sender_timeout of %v",
			c.StatusInterval, c.WALSenderTimeout)
	}
	return nil
}

// System identifies the server of a session.
type System struct {
	ID       string // the cluster's system identifier
	Database string // that is connected to
	Timeline int32
	WALFlush outbox.LSN // the server's flush position when asked; never a place to start from
}

// link is a replication connection before and during the stream.
type link struct {
	conn *pgconn.PgConn
	raw  io.Reader // below the frontend, which never reads past the message that it returns; see messageReader
	net  *socket   // below raw, and below TLS
}

// pinned are the settings of the session.
func pinned(c Config) map[string]string {
	return map[string]string{
		"replication":        "database",
		"application_name":   c.ApplicationName,
		"client_encoding":    "UTF8",
		"datestyle":          "ISO, YMD",
		"intervalstyle":      "postgres",
		"timezone":           "UTC",
		"bytea_output":       "hex",
		"extra_float_digits": "1",
		// names in what is asked, and as values of regclass and the like are printed; the SQL side has the same
		"search_path":          "pg_catalog, pg_temp",
		"wal_sender_timeout":   fmt.Sprintf("%dms", c.WALSenderTimeout.Milliseconds()),
		"statement_timeout":    "0",
		"lock_timeout":         "0",
		"idle_session_timeout": "0",
		// a role's setting may hide warnings, and some of them end the stream; see takeNotice for why it asks for more
		"client_min_messages": "log",
	}
}

// dial opens a connection in replication mode with the session settings pinned, so that the text form of every column
// does not depend on the server's or role's defaults.
func dial(ctx context.Context, c Config) (*link, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	// which knows the options of the SQL side that the server does not, such as pool_max_conns
	client, err := pgxpool.ParseConfig(c.URL)
	if err != nil {
		return nil, fmt.Errorf("read postgres.replication_url: %w", login.Unusable(err))
	}
	conf := &client.ConnConfig.Config
	if err := login.UsePassword(ctx, conf, c.Password); err != nil {
		return nil, err
	}
	for name, value := range pinned(c) {
		conf.RuntimeParams[name] = value
	}
	dialer := &net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second,
		Interval: 2 * time.Second, Count: 3}}
	l := &link{}
	conf.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		// not noted here: pgx also dials to cancel what a host did not answer, beside the next attempt
		return newSocket(conn), nil
	}
	if conf.ValidateConnect != nil {
		// The library's own asks in a way that a replication connection refuses. A slot is of use on no other server than
		// the primary, so a wish for another is not followed.
		conf.ValidateConnect = login.Primary
	}
	if conf.ConnectTimeout == 0 {
		conf.ConnectTimeout = c.WALSenderTimeout
	}
	conf.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		c.notice(n.SeverityUnlocalized, NoticeText{Severity: n.Severity, Code: n.Code, Message: n.Message})
	}
	conf.BuildFrontend = func(r io.Reader, w io.Writer) *pgproto3.Frontend {
		l.raw = r // the last attempt wins: fallbacks (host, TLS) build a frontend each
		return pgproto3.NewFrontend(&messageReader{src: r}, w)
	}
	if l.conn, err = pgconn.ConnectConfig(ctx, conf); err != nil {
		return nil, fmt.Errorf("connect for replication: %w", login.Explain(err, c.Password))
	}
	l.net = socketOf(l.conn.Conn())
	// Bytes of any encoding, which a server that was asked for UTF-8 refuses to send, and the stream would end there.
	if l.conn.ParameterStatus("server_encoding") == "SQL_ASCII" {
		if err := l.conn.Exec(ctx, "SET client_encoding = 'SQL_ASCII'").Close(); err != nil {
			l.close()
			return nil, fmt.Errorf("connect for replication: ask for text as it is stored: %w", err)
		}
	}
	if l.version() >= transactionTimeoutVersion {
		if err := l.conn.Exec(ctx, "SET transaction_timeout = 0").Close(); err != nil {
			l.close()
			return nil, fmt.Errorf("connect for replication: keep transaction_timeout from ending the stream: %w", err)
		}
	}
	return l, nil
}

// The versions of Postgres from which on a slot may have copies on standbys, and there is a transaction_timeout. That
// cuts off the decoding of a large transaction, too, at each attempt again; an older server refuses a connection that
// asks for it.
const failoverVersion, transactionTimeoutVersion = 17, 17

// version is the server's major version: of 18.3, 18beta1 and 18devel alike.
func (l *link) version() int {
	n, _ := strconv.Atoi(firstNumber.FindString(l.conn.ParameterStatus("server_version")))
	return n
}

func (l *link) close() {
	// The peer may be gone: Terminate is a courtesy, not worth a wait.
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = l.conn.Close(ctx)
}

func (l *link) identify(ctx context.Context) (System, error) {
	r, err := pglogrepl.IdentifySystem(ctx, l.conn)
	if err != nil {
		return System{}, fmt.Errorf("identify system: %w", err)
	}
	return System{ID: r.SystemID, Database: r.DBName, Timeline: r.Timeline, WALFlush: outbox.LSN(r.XLogPos)}, nil
}

// start asks for the stream from 0/0, which the server takes as "from what the slot confirmed". Any other position
// could skip WAL silently (PostgreSQL: CreateDecodingContext fast-forwards only to a later position, never back).
func (l *link) start(ctx context.Context, c Config) error {
	quoted := strings.ReplaceAll(strings.ReplaceAll(c.Publication, `"`, `""`), `'`, `''`)
	err := pglogrepl.StartReplication(ctx, l.conn, c.Slot, 0, pglogrepl.StartReplicationOptions{
		Mode: pglogrepl.LogicalReplication,
		PluginArgs: []string{
			`proto_version '1'`,
			`publication_names '"` + quoted + `"'`,
			`messages 'true'`,
		},
	})
	if err == nil {
		return nil
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch {
		case pg.Code == "55006":
			// The connection is of no use after the error, so the holder is taken from its text ("… is active for PID 123").
			pid, _ := strconv.ParseInt(lastNumber.FindString(pg.Message), 10, 64)
			return &SlotBusyError{Slot: c.Slot, PID: pid}
		case pg.Code == "42704" && strings.Contains(pg.Message, "replication slot"):
			return &SlotMissingError{Slot: c.Slot}
		case pg.Code == "55000" && strings.Contains(pg.Message, "can no longer "), pg.Code == "58P01":
			return &SlotLostError{Slot: c.Slot, Why: strings.TrimSuffix(pg.Message+": "+pg.Detail, ": ")}
		}
	}
	return fmt.Errorf("start replication from slot %q: %w", c.Slot, err)
}

// Identify connects, runs IDENTIFY_SYSTEM, and disconnects.
func Identify(ctx context.Context, c Config) (System, error) {
	l, err := dial(ctx, c)
	if err != nil {
		return System{}, err
	}
	defer l.close()
	return l.identify(ctx)
}

// Setting connects, reads a setting as this role's streams have it, and disconnects. The name must not come from a
// user.
func Setting(ctx context.Context, c Config, name string) (string, error) {
	l, err := dial(ctx, c)
	if err != nil {
		return "", err
	}
	defer l.close()
	results, err := l.conn.Exec(ctx, "SHOW "+name).ReadAll()
	if err != nil {
		return "", fmt.Errorf("read setting %s: %w", name, err)
	}
	if len(results) != 1 || len(results[0].Rows) != 1 {
		return "", fmt.Errorf("read setting %s: the server's answer has another form", name)
	}
	return string(results[0].Rows[0][0]), nil
}
