// Package effects compares an outbox with a consumer's inbox: which published event has had no effect. It reads both
// databases and no topic: the journal says where an event is, the inbox's offsets how far the consumer has come there.
//
// Tested by the command verify, on a real Postgres (cmd/cdc-relay).
package effects

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/store"
)

// Options say what is compared.
type Options struct {
	Rows      store.AuditRange
	CreatedAt string // the outbox's column; empty: no event is too old
	Consumer  string
	Schema    string        // of the inbox
	Keep      time.Duration // the consumer's: ids that are older are forgotten
	Tell      func(string)
}

// Verdict is the result. Each published row of the range is counted in one of the groups up to Unplaced.
type Verdict struct {
	Consumer  string   `json:"consumer"`
	Published int      `json:"published"` // rows of the range
	Done      int      `json:"done"`
	Parked    int      `json:"parked"` // waits in the inbox
	Dead      int      `json:"dead"`
	Discarded int      `json:"discarded"`
	Waiting   int      `json:"waiting"`   // at or behind the consumer's offset
	Missing   int      `json:"missing"`   // before it, and the inbox knows nothing of it
	Forgotten int      `json:"forgotten"` // the same, and so old that the inbox does not keep its id
	Elsewhere int      `json:"elsewhere"` // in topics and partitions that the consumer has not read
	Unplaced  int      `json:"unplaced"`  // no one knows where it is in its topic, and the inbox knows nothing of it
	Held      int      `json:"held"`      // not published: pending, parked or dead at the relay
	IDs       []string `json:"missing_ids"`
	Rewind    []string `json:"rewind"` // statements for the inbox's database that get the missing ones handled
}

const (
	portion   = 1000
	idsListed = 100
)

type place struct {
	topic     string
	partition int32
}

type comparison struct {
	o        Options
	conn     *pgx.Conn
	consumer int16
	sources  []int16 // the inbox's numbers for what this outbox's ids are unique in
	next     map[place]int64
	lowest   map[place]int64 // offsets of missing events
	v        *Verdict

	ids     []string
	created []*string
	at      []place
	offsets []int64
}

// Run compares. conn leads to the inbox's database. What is published while it runs is waiting at most.
func Run(ctx context.Context, st *store.Store, conn *pgx.Conn, o Options) (*Verdict, error) {
	c := &comparison{o: o, conn: conn, next: map[place]int64{}, lowest: map[place]int64{}}
	c.v = &Verdict{Consumer: o.Consumer, IDs: []string{}, Rewind: []string{}}
	if err := c.begin(ctx, st); err != nil {
		return nil, fmt.Errorf("read the inbox of %s: %w", o.Consumer, err)
	}
	var columns []string
	if o.CreatedAt != "" {
		columns = append(columns, o.CreatedAt)
	}
	read := 0
	err := st.AuditRows(ctx, o.Rows, columns, func(r *store.AuditRow) error {
		if read++; read%(10*portion) == 0 && o.Tell != nil {
			o.Tell(fmt.Sprintf("%d rows compared", read))
		}
		return c.take(ctx, r)
	})
	if err != nil {
		return nil, err
	}
	if err := c.flush(ctx); err != nil {
		return nil, err
	}
	c.rewind()
	return c.v, nil
}

// rewind says how the missing events are handled: the consumer begins again at the first of them, and skips the others.
func (c *comparison) rewind() {
	for at, offset := range c.lowest {
		c.v.Rewind = append(c.v.Rewind, fmt.Sprintf("SELECT %s(%s, %s, %d, %d);", c.table("inbox_rewind"),
			quoted(c.o.Consumer), quoted(at.topic), at.partition, offset))
	}
	slices.Sort(c.v.Rewind)
}

func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

func (c *comparison) table(name string) string {
	return pgx.Identifier{c.o.Schema, name}.Sanitize()
}

// begin reads how far the consumer is. What is before that must have a row when it is looked at later.
func (c *comparison) begin(ctx context.Context, st *store.Store) error {
	numbers, err := st.Sources(ctx)
	if err != nil {
		return err
	}
	return store.ReadOnly(ctx, c.conn, func(tx pgx.Tx) error { return c.read(ctx, tx, numbers) })
}

// read does it; numbers are the outbox's sources.
func (c *comparison) read(ctx context.Context, tx pgx.Tx, numbers []int32) error {
	err := tx.QueryRow(ctx, "SELECT consumer FROM "+c.table("inbox_consumer")+" WHERE name = $1", c.o.Consumer).
		Scan(&c.consumer)
	if errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("no consumer %q has its inbox in this database: cdc-relay inbox list names those that have",
			c.o.Consumer)
	}
	if err != nil {
		return fmt.Errorf("find the consumer: %w", err)
	}
	var at place
	var offset int64
	rows, err := tx.Query(ctx, "SELECT topic, partition, next_offset FROM "+c.table("inbox_offset")+
		" WHERE consumer = $1", c.consumer)
	if err != nil {
		return err
	}
	if _, err := pgx.ForEachRow(rows, []any{&at.topic, &at.partition, &offset}, func() error {
		c.next[at] = offset
		return nil
	}); err != nil {
		return err
	}
	c.sources = []int16{0} // of uuids
	var source int16
	var name string
	rows, err = tx.Query(ctx, "SELECT source, name FROM "+c.table("inbox_source"))
	if err != nil {
		return err
	}
	_, err = pgx.ForEachRow(rows, []any{&source, &name}, func() error {
		for _, number := range numbers {
			if strings.HasSuffix(name, "/"+strconv.Itoa(int(number))) {
				c.sources = append(c.sources, source)
			}
		}
		return nil
	})
	return err
}

func (c *comparison) take(ctx context.Context, r *store.AuditRow) error {
	if !r.Journaled && (r.Parked || r.Dead || !r.Published) {
		c.v.Held++
		return nil
	}
	c.v.Published++
	c.ids = append(c.ids, r.ID)
	c.at = append(c.at, place{r.Topic, r.Partition})
	c.offsets = append(c.offsets, r.Offset)
	var created *string
	if len(r.Columns) > 0 && r.Columns[0] != nil {
		text := *r.Columns[0]
		created = &text
	}
	c.created = append(c.created, created)
	if len(c.ids) < portion {
		return nil
	}
	return c.flush(ctx)
}

// flush asks the inbox about the rows that were taken. It has uuids in small letters. A time without a zone is of UTC,
// as it is for the relay.
func (c *comparison) flush(ctx context.Context) error {
	err := store.ReadOnly(ctx, c.conn, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `SELECT u.place, (SELECT min(e.state) FROM `+c.table("inbox_event")+` e
			WHERE e.consumer = $1 AND e.source = ANY ($2) AND e.event_id IN (u.id, lower(u.id))
			AND (e.event_id = u.id OR e.source = 0)),
			coalesce(u.created::timestamptz < now() - make_interval(secs => $5), false)
			FROM unnest($3::text[], $4::text[]) WITH ORDINALITY AS u (id, created, place)`,
			c.consumer, c.sources, c.ids, c.created, c.o.Keep.Seconds())
		if err != nil {
			return err
		}
		var place int
		var state *int16
		var old bool
		_, err = pgx.ForEachRow(rows, []any{&place, &state, &old}, func() error {
			c.judge(place-1, state, old)
			return nil
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("ask the inbox of %s: %w", c.o.Consumer, err)
	}
	c.ids, c.created, c.at, c.offsets = c.ids[:0], c.created[:0], c.at[:0], c.offsets[:0]
	return nil
}

func (c *comparison) judge(n int, state *int16, old bool) {
	v := c.v
	if state != nil {
		*[]*int{&v.Done, &v.Parked, &v.Dead, &v.Discarded}[*state]++
		return
	}
	next, reads := c.next[c.at[n]]
	switch {
	case c.at[n].topic == "":
		v.Unplaced++
	case !reads:
		v.Elsewhere++
	case c.offsets[n] >= next:
		v.Waiting++
	case old:
		v.Forgotten++
	default:
		v.Missing++
		if lowest, there := c.lowest[c.at[n]]; !there || c.offsets[n] < lowest {
			c.lowest[c.at[n]] = c.offsets[n]
		}
		if len(v.IDs) < idsListed {
			v.IDs = append(v.IDs, c.ids[n])
		}
	}
}
