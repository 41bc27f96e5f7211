package embedded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/test/embedded/child"
)

// How long an end may take before the next harder means is used.
const (
	fastPatience      = 10 * time.Second // a fast shutdown waits for replication clients to take the last WAL
	immediatePatience = 5 * time.Second
	startPatience     = 60 * time.Second // crash recovery of a large WAL included
	startAttempts     = 5                // another process may take a free port before Postgres binds it
)

// PostgresConfig says what to start. The zero value is a server of any supported major version on a free port, with
// its data in a temporary directory.
type PostgresConfig struct {
	// holds the cluster; one that is there already is started as it is. "" = a temporary directory, removed by Stop
	Dir      string
	Above    string            // where a temporary directory is made; "" = where the system's are
	Port     int               // on 127.0.0.1; 0 = a free one
	BinDir   string            // directory of initdb and postgres; "" = search, else download, see StartPostgres
	Version  string            // wanted major version, such as "17"; "" = any from 14
	Password string            // of the superuser, needed to connect as it; "" = every user of this machine may
	Settings map[string]string // added to and winning over the settings that StartPostgres names
	Log      io.Writer         // takes the server's log; nil = only its end is kept, for error messages
}

// Postgres is a server started by [StartPostgres]. Its methods may be called from any goroutine, one at a time.
type Postgres struct {
	config    PostgresConfig
	binaries  binaries
	user      *account // whom the server runs as; nil = as this process
	temporary bool     // Dir was made by us

	mu      sync.Mutex
	port    int
	server  *child.Process // nil = not running
	stopped bool           // Stop was called: the directory may be gone
}

// StartPostgres starts a server that listens on 127.0.0.1 only, lets everybody in as superuser "postgres" without a
// password, and returns when it takes connections. Settings beyond initdb's: wal_level=logical, 20 WAL senders, slots
// and prepared transactions each, fsync=off (survives a crash of the server, not of the machine).
//
// Binaries are looked for in this order: BinDir; the newest /usr/lib/postgresql/*/bin or /usr/pgsql-*/bin; PATH; a
// bundle downloaded earlier; a download of about 15 MB, kept in the user's cache directory. Any must be of the wanted
// Version, at least 14.
//
// The server never outlives this process, even if that is killed. Postgres refuses to run as root: a root process runs
// it as user "postgres", else "no one", so Dir must lie where they may go, not in root's home. ctx bounds the start
// only. Linux only; elsewhere it returns an error that says so.
func StartPostgres(ctx context.Context, c PostgresConfig) (*Postgres, error) {
	if err := supported(); err != nil {
		return nil, fmt.Errorf("start embedded Postgres: %w", err)
	}
	p := &Postgres{config: c, port: c.Port}
	if err := p.prepare(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start embedded Postgres: %w", err), p.removeTemporary())
	}
	if err := p.Start(ctx); err != nil {
		return nil, errors.Join(err, p.removeTemporary())
	}
	return p, nil
}

// prepare finds the binaries and the account, and makes the directory and, unless there is one, the cluster.
func (p *Postgres) prepare(ctx context.Context) error {
	var err error
	if p.binaries, err = findBinaries(ctx, p.config); err != nil {
		return err
	}
	if p.user, err = serverAccount(); err != nil {
		return err
	}
	if err := p.user.reaches(p.binaries.initdb()); err != nil {
		return err
	}
	if err := p.makeDir(); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(p.dataDir(), "PG_VERSION")); err == nil {
		return nil
	}
	return p.initCluster(ctx)
}

func (p *Postgres) makeDir() error {
	dir := p.config.Dir
	if dir == "" {
		var err error
		if dir, err = os.MkdirTemp(p.config.Above, "cdc-relay-postgres-"); err != nil {
			return fmt.Errorf("make a directory for Postgres: %w", err)
		}
		p.temporary = true
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("find the directory of Postgres: %w", err)
	}
	p.config.Dir = dir
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make the directory of Postgres: %w", err)
	}
	return p.user.own(dir)
}

func (p *Postgres) dataDir() string { return filepath.Join(p.config.Dir, "data") }

// initCluster runs initdb and makes the cluster include the settings file that Start writes.
func (p *Postgres) initCluster(ctx context.Context) error {
	login := []string{"-A", "trust"}
	if p.config.Password != "" {
		path := filepath.Join(p.config.Dir, "password")
		if err := os.WriteFile(path, []byte(p.config.Password+"\n"), 0o600); err != nil {
			return fmt.Errorf("write the password of Postgres: %w", err)
		}
		defer func() { _ = os.Remove(path) }()
		if err := p.user.own(path); err != nil {
			return err
		}
		login = []string{"-A", "scram-sha-256", "--pwfile", path}
	}
	err := run(ctx, p.user, p.config.Dir, p.binaries.initdb(), append(login,
		"-D", p.dataDir(), "-U", "postgres", "-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions")...)
	if err != nil {
		return fmt.Errorf("make a Postgres cluster in %s: %w", p.config.Dir, err)
	}
	file, err := os.OpenFile(filepath.Join(p.dataDir(), "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("configure Postgres: %w", err)
	}
	_, err = fmt.Fprintf(file, "\ninclude '%s'\n", settingsFile)
	return errors.Join(err, file.Close())
}

// settingsFile is rewritten at each start. Settings stand in a file, not on the command line, so that ALTER SYSTEM in
// a test still wins over them.
const settingsFile = "embedded.conf"

func (p *Postgres) writeSettings() error {
	settings := map[string]string{
		"wal_level":                 "logical",
		"max_wal_senders":           "20",
		"max_replication_slots":     "20",
		"max_prepared_transactions": "20",
		"fsync":                     "off",
		"log_timezone":              "UTC",
		"timezone":                  "UTC",
	}
	for name, value := range p.config.Settings {
		settings[name] = value
	}
	var text strings.Builder
	for name, value := range settings {
		fmt.Fprintf(&text, "%s = '%s'\n", name, strings.NewReplacer("'", "''", `\`, `\\`).Replace(value))
	}
	path := filepath.Join(p.dataDir(), settingsFile)
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		return fmt.Errorf("configure Postgres: %w", err)
	}
	return p.user.own(path)
}

// Start starts the server again after [Postgres.Fast], [Postgres.Immediate] or [Postgres.Kill9], on the same port and
// data. It returns when recovery is over, or a standby has become consistent, and connections are taken.
func (p *Postgres) Start(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return errors.New("start embedded Postgres: it was stopped for good")
	}
	if p.server != nil && !p.server.Ended() {
		return errors.New("start embedded Postgres: it is running")
	}
	if err := p.writeSettings(); err != nil {
		return fmt.Errorf("start embedded Postgres: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	for attempt := 1; ; attempt++ {
		err := p.startOnce(ctx)
		if err == nil {
			return nil
		}
		if attempt == startAttempts || !errors.Is(err, errPortTaken) || p.config.Port != 0 || ctx.Err() != nil {
			return fmt.Errorf("start embedded Postgres in %s: %w", p.config.Dir, err)
		}
		p.port = 0
	}
}

var errPortTaken = errors.New("the port is taken")

func (p *Postgres) startOnce(ctx context.Context) error {
	if p.port == 0 {
		port, err := FreePort()
		if err != nil {
			return err
		}
		p.port = port
	}
	server, err := startServer(p.user, p.config, p.binaries.postgres(),
		"-D", p.dataDir(), "-p", strconv.Itoa(p.port),
		"-c", "listen_addresses=127.0.0.1",
		"-c", "unix_socket_directories=", // TCP alone: a socket's path is limited to 107 bytes
	)
	if err != nil {
		return err
	}
	if err := p.waitReady(ctx, server); err != nil {
		server.Kill()
		if strings.Contains(server.LastWords(), "Address already in use") {
			err = errors.Join(errPortTaken, err)
		}
		return err
	}
	p.server = server
	return nil
}

// waitReady waits until the server has written "ready", or "standby", to its own lock file, as pg_ctl does (Postgres's
// src/include/utils/pidfile.h). Trying to connect instead could meet another server on the same port.
func (p *Postgres) waitReady(ctx context.Context, server *child.Process) error {
	const pidLine, statusLine = 0, 7
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for {
		content, err := os.ReadFile(filepath.Join(p.dataDir(), "postmaster.pid"))
		if err == nil {
			lines := strings.Split(string(content), "\n")
			if len(lines) > statusLine && lines[pidLine] == strconv.Itoa(server.PID()) {
				if status := strings.TrimSpace(lines[statusLine]); status == "ready" || status == "standby" {
					return nil
				}
			}
		}
		select {
		case <-server.Done():
			return fmt.Errorf("postgres ended at once: %s", server.LastWords())
		case <-ctx.Done():
			return fmt.Errorf("wait until postgres is ready: %w; its log ends: %s", ctx.Err(), server.LastWords())
		case <-poll.C:
		}
	}
}

// URL is the connection string of the superuser for a database of the server. Parameters can be appended to it with &.
func (p *Postgres) URL(database string) string {
	u := url.URL{
		Scheme:   "postgres",
		User:     url.User("postgres"),
		Host:     net.JoinHostPort("127.0.0.1", strconv.Itoa(p.Port())),
		Path:     "/" + database,
		RawQuery: "sslmode=disable",
	}
	if p.config.Password != "" {
		u.User = url.UserPassword("postgres", p.config.Password)
	}
	return u.String()
}

// Port is the TCP port on 127.0.0.1. It stays the same over restarts.
func (p *Postgres) Port() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.port
}

// Dir is the directory that holds the cluster's data directory, "data".
func (p *Postgres) Dir() string { return p.config.Dir }

// Version is the server's major version, such as 15.
func (p *Postgres) Version() int { return p.binaries.major }

// PID is the process id of the postmaster, 0 when it does not run.
func (p *Postgres) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.server == nil || p.server.Ended() {
		return 0
	}
	return p.server.PID()
}

// Done is closed when the running server ends, by whatever cause.
func (p *Postgres) Done() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.server == nil {
		closed := make(chan struct{})
		close(closed)
		return closed
	}
	return p.server.Done()
}

// Stop ends the server by a fast shutdown, by harder means if that takes longer than 10 seconds, and removes the
// directory if it is a temporary one. The server cannot be started again. A second Stop does nothing.
func (p *Postgres) Stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), fastPatience)
	defer cancel()
	if err := p.Fast(ctx); err != nil {
		if err := p.Immediate(); err != nil {
			return err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return nil
	}
	p.stopped = true
	return p.removeTemporary()
}

func (p *Postgres) removeTemporary() error {
	if !p.temporary {
		return nil
	}
	if err := os.RemoveAll(p.config.Dir); err != nil {
		return fmt.Errorf("remove the directory of Postgres: %w", err)
	}
	return nil
}
