package inbox

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// protocol is the log of a seed's world and its members, for finding out why it failed.
type protocol struct {
	mu  sync.Mutex
	all []byte // guarded by mu
}

func (p *protocol) Write(line []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = append(p.all, line...)
	return len(line), nil
}

func (p *protocol) say(format string, args ...any) {
	_, _ = fmt.Fprintf(p, "time=%s %s\n", time.Now().Format("2006-01-02T15:04:05.000Z07:00"), fmt.Sprintf(format, args...))
}

func (p *protocol) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return string(p.all)
}

// keep writes it to a file, and returns where.
func (p *protocol) keep() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	file, err := os.CreateTemp("", "inbox-seed-*.log")
	if err != nil {
		return err.Error()
	}
	defer file.Close()
	if _, err := file.Write(p.all); err != nil {
		return err.Error()
	}
	return file.Name()
}

// look has the protocol say how the world stands: the group, the server's sessions, the tables, what all goroutines do.
func (w *world) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for _, m := range w.members {
		m.wire.mu.Lock()
		w.log.say("member %d is there, with connections from %v", m.number, m.wire.hosts)
		m.wire.mu.Unlock()
		w.log.say("  %+v", m.consumer.Status())
	}
	groups, err := w.groups(ctx)
	if err != nil {
		w.log.say("describe the group: %v", err)
	}
	for _, g := range groups {
		w.log.say("group %s is %s", g.Group, g.State)
		for _, m := range g.Members {
			w.log.say("  %s from %s, killed: %t, has %q", m.MemberID, m.ClientHost, slices.Contains(w.gone, m.ClientHost),
				m.MemberAssignment)
		}
	}
	queries := []string{"SELECT a::text FROM pg_stat_activity a WHERE backend_type = 'client backend'",
		"SELECT l::text FROM pg_locks l WHERE NOT granted"}
	for _, table := range inboxTables {
		queries = append(queries, fmt.Sprintf("SELECT t::text FROM %s.%s t", w.schema, table))
	}
	for _, q := range queries {
		w.log.say("%s", q)
		rows, err := w.admin.Query(ctx, q)
		if err != nil {
			w.log.say("%v", err)
			continue
		}
		texts, err := pgx.CollectRows(rows, pgx.RowTo[string])
		for _, text := range texts {
			w.log.say("  %s", text)
		}
		if err != nil {
			w.log.say("%v", err)
		}
	}
	stacks := make([]byte, 4<<20)
	w.log.say("%s", stacks[:runtime.Stack(stacks, true)])
}
