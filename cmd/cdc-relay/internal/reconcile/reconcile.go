// Package reconcile has a whole outbox table looked through once: by the relay that runs, or, while none does, by a
// relay in this process.
//
// Tested by the command reconcile, on a real Postgres (cmd/cdc-relay, test).
package reconcile

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/rs/zerolog"

	"github.com/cdc-relay/cdc-relay/cmd/cdc-relay/internal/ask"
	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/brokers"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/relay"
)

// Ask has the relay that runs look through the table, and waits as long for it.
func Ask(ctx context.Context, a *cli.App, st *store.Store,
	wait time.Duration) (request int64, r relay.ReconcileReport, err error) {
	id, err := st.AddRequest(ctx, store.RequestReconcile, store.Filter{}, cli.UserAtHost(), "")
	if err != nil {
		return 0, r, err
	}
	bounded, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	done, err := ask.Follow(bounded, a, st, id)
	if bounded.Err() != nil && ctx.Err() == nil {
		return id, r, fmt.Errorf("not done within %v; request %d stays, and the relay goes on with it: "+
			"give more time with --wait, or see its log", wait, id)
	}
	if err != nil {
		return id, r, err
	}
	return id, relay.ReconcileReport{Unrecorded: int(ask.Total(done)), Missed: int(done.Done),
		Took: done.FinishedAt.Sub(*done.StartedAt)}, nil
}

// Here relays in this process, with the slot, until the look through the whole table is done.
func Here(ctx context.Context, cfg config.Config, log zerolog.Logger, version string,
	wait time.Duration) (relay.ReconcileReport, error) {
	cfg.OnHalt = config.OnHaltExit
	r, err := brokers.Relay(cfg, log, os.Stdout, relay.WithLogger(log), relay.WithVersion(version))
	if err != nil {
		return relay.ReconcileReport{}, err
	}
	relaying, end := context.WithCancel(ctx)
	defer end()
	ended := make(chan error, 1)
	go func() {
		ended <- r.Run(relaying)
		end()
	}()
	bounded, cancel := context.WithTimeout(relaying, wait)
	defer cancel()
	report, err := r.Reconcile(bounded)
	end()
	if failed := <-ended; failed != nil {
		return report, failed
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return report, fmt.Errorf("not done within %v: what waits is relayed first (see the log); "+
			"give more time with --wait, or start cdc-relay run, which reconciles by itself", wait)
	}
	return report, err
}
