package inbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

type misdeed func(context.Context, pgx.Tx, inbox.Event[payload]) error

func inSQL(sql string) misdeed {
	return func(ctx context.Context, tx pgx.Tx, e inbox.Event[payload]) error {
		if err := apply(ctx, tx, e); err != nil {
			return err
		}
		_, _ = tx.Exec(ctx, sql)
		return nil
	}
}

// raw runs statements on the connection itself, behind the event's effect.
func raw(sql string) misdeed {
	return func(ctx context.Context, tx pgx.Tx, e inbox.Event[payload]) error {
		if err := apply(ctx, tx, e); err != nil {
			return err
		}
		_, err := tx.Conn().PgConn().Exec(ctx, sql).ReadAll()
		return err
	}
}

func failing(err error) misdeed {
	return func(context.Context, pgx.Tx, inbox.Event[payload]) error { return err }
}

// misdeeds are ways in which a handler treats one of the events: none is an outage.
var misdeeds = map[string]misdeed{
	"exceeds its time": func(ctx context.Context, _ pgx.Tx, _ inbox.Event[payload]) error {
		<-ctx.Done()
		return ctx.Err()
	},
	"exceeds its time in SQL": func(ctx context.Context, tx pgx.Tx, _ inbox.Event[payload]) error {
		_, err := tx.Exec(ctx, "SELECT pg_sleep(20)")
		return err
	},
	"exceeds its time and returns nil": func(ctx context.Context, tx pgx.Tx, e inbox.Event[payload]) error {
		<-ctx.Done()
		return apply(context.WithoutCancel(ctx), tx, e)
	},
	"exceeds a time of its own": func(ctx context.Context, tx pgx.Tx, _ inbox.Event[payload]) error {
		ctx, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		defer cancel()
		_, err := tx.Exec(ctx, "SELECT pg_sleep(20)")
		return err
	},
	"hides an error of the database": inSQL("SELECT 1 / 0"),
	"rolls back":                     inSQL("ROLLBACK"),
	"commits":                        inSQL("-- all is well\nCOMMIT"),
	"rolls back on the connection":   raw("ROLLBACK"),
	"rolls back and begins again":    raw("ROLLBACK; BEGIN"),
	"ends its own session": func(ctx context.Context, tx pgx.Tx, _ inbox.Event[payload]) error {
		_, err := tx.Exec(ctx, "SELECT pg_terminate_backend(pg_backend_pid())")
		return err
	},
	"reads truncated JSON":     failing(io.ErrUnexpectedEOF),
	"reads an empty answer":    failing(fmt.Errorf("ask the customer service: %w", io.EOF)),
	"cannot dial":              failing(&net.OpError{Op: "dial", Err: errors.New("connection refused")}),
	"cancels its context":      failing(context.Canceled),
	"uses a closed connection": failing(fmt.Errorf("write: %w", net.ErrClosed)),
	"asks another database":    failing(&pgconn.PgError{Code: "57P01", Message: "terminating connection"}),
	"makes its transaction read-only": func(ctx context.Context, tx pgx.Tx, e inbox.Event[payload]) error {
		if _, err := tx.Exec(ctx, "SET TRANSACTION READ ONLY"); err != nil {
			return err
		}
		return apply(ctx, tx, e)
	},
	"panics": func(context.Context, pgx.Tx, inbox.Event[payload]) error { panic("no such customer") },
}

// Whatever a handler does with one event, the event becomes a dead letter after its attempts, and all the others have
// their effects, once and in order. Seen to fail with what is noted about an event on the handler's context, with
// causes told by the error's type, and without a look at the transaction: all but a time of the handler's own and a
// panic were no dead letter within a minute.
func TestNothingThatAHandlerDoesIsAnOutage(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	for name, do := range misdeeds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range count(1, 5) {
				pg := misbehave(t, do)
				until(t, pg, "SELECT string_agg(class, ' ') FROM inbox_dead", "exhausted")
				judgeOthers(t, pg, misEvents-1)
			}
		})
	}
}

// A handler that commits on the connection itself has had its event's effect, and no other event loses its own. Seen to
// fail with the ids of the others left as they were committed: 40 of 60 effects were missing.
func TestAHandlerThatCommitsLosesNoOtherEvent(t *testing.T) {
	t.Parallel()
	for _, sql := range []string{"COMMIT", "COMMIT; BEGIN"} {
		t.Run(sql, func(t *testing.T) {
			t.Parallel()
			pg := misbehave(t, raw(sql))
			judgeOthers(t, pg, misEvents)
		})
	}
}

const misEvents, misKeys, misSeq = 60, 10, 13

// misbehave runs a consumer until each event is decided.
func misbehave(t *testing.T, do misdeed) *harness.PG {
	t.Helper()
	pg := harness.Postgres(t)
	pg.Exec(t, effects)
	addrs, topic := topicOf(t, 1)
	var records []*kgo.Record
	for n := range misEvents {
		records = append(records, event(topic, n, misKeys))
	}
	produce(t, addrs, records...)
	_, stop := start(t, newPool(t, pg.URL, 4), inbox.Config{
		Brokers: addrs, Topics: []string{topic}, Workers: 1, HandlerTimeout: 300 * time.Millisecond,
		Retry: inbox.Retry{MaxAttempts: 3, InitialBackoff: time.Millisecond, MaxBackoff: 5 * time.Millisecond, ParkAfter: 2},
	}, func(c *inbox.Consumer) {
		inbox.On(c, "OrderPlaced", func(ctx context.Context, tx pgx.Tx, e inbox.Event[payload]) error {
			if e.Payload.Seq == misSeq {
				return do(ctx, tx, e)
			}
			return apply(ctx, tx, e)
		})
	})
	until(t, pg, "SELECT count(*) FROM inbox_event WHERE state <> 1", fmt.Sprint(misEvents))
	stop()
	return pg
}

// judgeOthers holds the effects against what is promised.
func judgeOthers(t *testing.T, pg *harness.PG, events int) {
	t.Helper()
	judge(t, pg, events)
	if got := pg.Query(t, "SELECT count(*) FROM inbox_parked"); got != "0" {
		t.Errorf("parked events: got %s, want 0", got)
	}
}

// Settings that a handler leaves behind reach no other event, neither in its transaction nor on its connection. Seen to
// fail, with set_config and on the connection, where connections are used again: 14 of 60 events were decided.
func TestSettingsThatAHandlerLeavesReachNoOtherEvent(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]misdeed{
		"SET": func(ctx context.Context, tx pgx.Tx, _ inbox.Event[payload]) error {
			for _, sql := range []string{"SET search_path = shadow", "SET default_transaction_read_only = on",
				"SET statement_timeout = '1ms'", "SET TimeZone = 'Asia/Kolkata'", "SET ROLE pg_monitor"} {
				if _, err := tx.Exec(ctx, sql); err != nil {
					return err
				}
			}
			return nil
		},
		"SET LOCAL":         inSQL("SET LOCAL search_path = shadow"),
		"set_config":        inSQL("SELECT set_config('search_path', 'shadow', false)"),
		"on the connection": raw("SET search_path = shadow"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var called atomic.Int32
			pg := misbehave(t, func(ctx context.Context, tx pgx.Tx, e inbox.Event[payload]) error {
				called.Add(1)
				return change(ctx, tx, e)
			})
			want := misEvents
			if name == "SET" {
				want-- // it has no effect of its own
			}
			judgeOthers(t, pg, want)
			if called.Load() == 0 {
				t.Error("the handler was not called")
			}
		})
	}
}
