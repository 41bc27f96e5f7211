package harness

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// A session of Postgres costs 12 ms of CPU with the race detector, fifty times as much as a query, and most waits poll
// by queries. So a query's session is kept for a moment, for the next query of the same URL. What might make a session
// differ from a new one, such as statements and a database that goes away, ends those that are kept.
const sessionRest = 250 * time.Millisecond

var kept = keptSessions{of: map[string]*keptSession{}}

type keptSessions struct {
	mu sync.Mutex
	of map[string]*keptSession // by URL; guarded by mu
}

type keptSession struct {
	conn *pgx.Conn
	end  *time.Timer
}

// take returns the kept session of the URL, or nil; it is the caller's then.
func (k *keptSessions) take(url string) *pgx.Conn {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.of[url]
	if s == nil || !s.end.Stop() {
		return nil
	}
	delete(k.of, url)
	return s.conn
}

// keep keeps a session for the next query, or closes it if one is kept.
func (k *keptSessions) keep(url string, conn *pgx.Conn) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.of[url] != nil {
		go closeSession(conn) // which a frozen server may delay
		return
	}
	s := &keptSession{conn: conn}
	k.of[url] = s
	s.end = time.AfterFunc(sessionRest, func() {
		k.mu.Lock()
		if k.of[url] == s {
			delete(k.of, url)
		}
		k.mu.Unlock()
		closeSession(conn)
	})
}

// drop closes all sessions that are kept.
func (k *keptSessions) drop() {
	k.mu.Lock()
	of := k.of
	k.of = map[string]*keptSession{}
	k.mu.Unlock()
	for _, s := range of {
		if s.end.Stop() {
			closeSession(s.conn)
		}
	}
}

func closeSession(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}

// queryOn is the first column of the first row as text, in a session that may have served other queries.
func queryOn(ctx context.Context, url, sql string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, sqlPatience)
	defer cancel()
	ask := func(conn *pgx.Conn) (got *string, err error) {
		err = conn.QueryRow(ctx, "SELECT ("+sql+")::text").Scan(&got)
		return got, err
	}
	conn := kept.take(url)
	var got *string
	var err error
	if conn != nil {
		got, err = ask(conn)
	}
	if conn == nil || err != nil && conn.IsClosed() { // a server that was ended may run again
		if conn, err = pgx.Connect(ctx, url); err != nil {
			return "", fmt.Errorf("connect: %w", err)
		}
		got, err = ask(conn)
	}
	if err != nil || strings.Contains(sql, "set_config") {
		closeSession(conn)
	} else {
		kept.keep(url, conn)
	}
	if err != nil {
		return "", fmt.Errorf("query: %w", err)
	}
	if got == nil {
		return "", nil
	}
	return *got, nil
}
