package store_test

import (
	"context"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Break caught: a transaction that the role's transaction_timeout ends, though it is within its own limits: a long look
// at the outbox, a write that waits for a lock, and the same at each attempt. Seen to fail, on PostgreSQL 18, with
// transaction_timeout left to the role.
func TestTransactionTimeoutOfTheRoleEndsNoCall(t *testing.T) {
	pg := harness.Postgres(t)
	if pg.Query(t, `SELECT coalesce(current_setting('transaction_timeout', true), 'none')`) == "none" {
		t.Skip("SKIPPED: this PostgreSQL has no transaction_timeout; CDC_RELAY_TEST_POSTGRES_VERSION=18 has")
	}
	const timeout = 300 * time.Millisecond
	c := usual(t, pg)
	registered(t, c)
	c = asOther(t, pg, c)
	u, err := url.Parse(c.URL)
	must(t, "read the URL", err)
	pg.Exec(t, fmt.Sprintf("ALTER ROLE %s SET transaction_timeout = '%v'", u.User.Username(), timeout))
	locks, err := pgx.Connect(t.Context(), pg.URL)
	must(t, "connect", err)
	t.Cleanup(func() { _ = locks.Close(context.Background()) })
	s := open(t, c)
	_, err = s.Outbox(t.Context()) // the connection is there
	must(t, "read the outbox", err)
	for what, do := range map[string]func(context.Context) error{
		"read the state": func(ctx context.Context) error { _, err := s.State(ctx); return err },
		"settle": func(ctx context.Context) error {
			return s.Settle(ctx, published(1, uuid), nil)
		},
	} {
		held, err := locks.Begin(t.Context())
		must(t, "begin", err)
		_, err = held.Exec(t.Context(), `LOCK TABLE cdc_relay_state, cdc_relay_journal, cdc_relay_journal_batch`)
		must(t, "lock the tables", err)
		released := make(chan error)
		time.AfterFunc(3*timeout, func() { released <- held.Rollback(context.Background()) })
		began := time.Now()
		must(t, what, do(t.Context()))
		if took := time.Since(began); took < timeout {
			t.Errorf("%s took %v: it waited for nothing", what, took)
		}
		must(t, "unlock the tables", <-released)
	}
}
