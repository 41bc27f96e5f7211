package inbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

const insertEffect = "INSERT INTO effect (key, event, seq, partition, process) VALUES ($1, $2, $3, $4, $5)"

func applySQL(ctx context.Context, tx *sql.Tx, e inbox.Event[payload]) error {
	_, err := tx.ExecContext(ctx, insertEffect, string(e.Key), e.ID, e.Payload.Seq, e.Partition, os.Getpid())
	return err
}

// Handlers on database/sql keep the promises of the others: an effect once, with the event's id; what fails or ends the
// transaction has none and is a dead letter; a statement of theirs fails as in pgx. Values come as database/sql has
// them.
func TestHandlersOnDatabaseSQLHaveEachEffectOnce(t *testing.T) {
	t.Parallel()
	for name, on := range map[string]func(*inbox.Consumer, func(context.Context, *sql.Tx, inbox.Event[payload]) error){
		"one": func(c *inbox.Consumer, do func(context.Context, *sql.Tx, inbox.Event[payload]) error) {
			inbox.OnSQL(c, "OrderPlaced", do)
		},
		"batch": func(c *inbox.Consumer, do func(context.Context, *sql.Tx, inbox.Event[payload]) error) {
			inbox.OnBatchSQL(c, "OrderPlaced", func(ctx context.Context, tx *sql.Tx, es []inbox.Event[payload]) error {
				for _, e := range es {
					if err := do(ctx, tx, e); err != nil {
						return err
					}
				}
				return nil
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pg := harness.Postgres(t)
			pg.Exec(t, effects)
			addrs, topic := topicOf(t, 1)
			const events = 60
			var records []*kgo.Record
			for n := range events {
				r := event(topic, n, 10)
				fails := map[int]string{10: "error", 20: "statement", 30: "commit", 40: "rollback", 50: "begin"}[n]
				r.Value = fmt.Appendf(nil, `{"seq": %d, "fails": %q}`, n, fails)
				records = append(records, r)
			}
			produce(t, addrs, records...)
			_, stop := start(t, newPool(t, pg.URL, 4), inbox.Config{Brokers: addrs, Topics: []string{topic},
				Retry: inbox.Retry{MaxAttempts: 2, InitialBackoff: time.Millisecond}}, func(c *inbox.Consumer) {
				on(c, misuseSQL)
			})
			until(t, pg, "SELECT count(*) FROM inbox_event WHERE state <> 1", fmt.Sprint(events))
			stop()
			until(t, pg, "SELECT count(*) FROM inbox_dead", "5")
			judge(t, pg, events-5)
			if errs := pg.Query(t, "SELECT string_agg(error, '|') FROM inbox_dead"); strings.Count(errs, "is lent") != 3 ||
				!strings.Contains(errs, "22012") {
				t.Errorf("errors: got %s, want three of a lent transaction and one of the statement", errs)
			}
		})
	}
}

// misuseSQL does with the transaction what the event says.
func misuseSQL(ctx context.Context, tx *sql.Tx, e inbox.Event[payload]) error {
	if err := applySQL(ctx, tx, e); err != nil {
		return err
	}
	switch e.Payload.Fails {
	case "error":
		return errors.New("no such customer")
	case "statement":
		var n int
		return tx.QueryRowContext(ctx, "SELECT 1 / ($1::int - $1)", e.Payload.Seq).Scan(&n)
	case "commit":
		return tx.Commit()
	case "rollback":
		_ = tx.Rollback()
		return nil
	case "begin":
		_, err := tx.ExecContext(ctx, "COMMIT")
		return errors.Join(err, errors.New("the transaction is lent")) // refused by the inbox, as in pgx
	}
	var (
		n    int
		big  int64
		half float64
		yes  bool
		at   time.Time
		text string
		raw  []byte
		none sql.NullString
	)
	found, err := tx.PrepareContext(ctx, `SELECT $1::int2, 1 << 20, 0.5::float4, true, timestamptz '2026-11-28 10:00Z',
		'{"a": 1}'::jsonb || '{}', '\x0001'::bytea, NULL::text UNION ALL SELECT 1, 2, 3, false, 'infinity', '1', '', 'x'
		ORDER BY 2 DESC`)
	if err != nil {
		return err
	}
	defer found.Close()
	if err := found.QueryRowContext(ctx, 7).Scan(&n, &big, &half, &yes, &at, &text, &raw, &none); err != nil {
		return err
	}
	got := fmt.Sprintf("%d %d %v %t %d %s %d %t", n, big, half, yes, at.UTC().Hour(), text, raw, none.Valid)
	if want := `7 1048576 0.5 true 10 {"a": 1} [0 1] false`; got != want {
		return fmt.Errorf("values: got %s, want %s", got, want)
	}
	return nil
}

// Wrappers see each event of a batch, once for each call. What one refuses is a dead letter, what one handles itself
// does not reach the handler, and one that hides errors hides none of its neighbours'.
func TestWrappersSeeEachEventOfABatch(t *testing.T) {
	t.Parallel()
	pg := harness.Postgres(t)
	pg.Exec(t, effects)
	addrs, topic := topicOf(t, 1)
	const events = 100
	var records []*kgo.Record
	for n := range events {
		r := event(topic, n, events)
		fails := map[int]string{10: "refused", 20: "skipped", 30: "hidden", 40: "permanent"}[n]
		r.Value = fmt.Appendf(nil, `{"seq": %d, "fails": %q}`, n, fails)
		records = append(records, r)
	}
	produce(t, addrs, records...)
	_, stop := start(t, newPool(t, pg.URL, 4), inbox.Config{Brokers: addrs, Topics: []string{topic}, Workers: 1,
		Retry: inbox.Retry{MaxAttempts: 2, InitialBackoff: time.Millisecond}}, func(c *inbox.Consumer) {
		c.Use(func(next inbox.Handler) inbox.Handler {
			return func(ctx context.Context, tx pgx.Tx, m *inbox.Message) error {
				switch text := string(m.Payload); {
				case strings.Contains(text, "refused"):
					return inbox.Permanent(errors.New("it does not fit the schema"))
				case strings.Contains(text, "skipped"):
					return nil
				case strings.Contains(text, "hidden"):
					_ = next(ctx, tx, m)
					return nil
				}
				return next(ctx, tx, m)
			}
		})
		inbox.OnBatch(c, "OrderPlaced", func(ctx context.Context, tx pgx.Tx, es []inbox.Event[payload]) error {
			for _, e := range es {
				if e.Payload.Fails == "permanent" || e.Payload.Fails == "hidden" {
					return inbox.Permanent(errors.New("no such customer"))
				}
				if err := apply(ctx, tx, e); err != nil {
					return err
				}
			}
			return nil
		})
	})
	until(t, pg, "SELECT count(*) FROM inbox_event WHERE state <> 1", fmt.Sprint(events))
	stop()
	judge(t, pg, events-4)
	if got := pg.Query(t, "SELECT count(*) FROM inbox_dead"); got != "2" {
		t.Errorf("dead letters: got %s, want 2: what was refused, and what failed", got)
	}
}
