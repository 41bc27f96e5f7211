package ask

import (
	"context"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/store"
)

// request writes down what is asked for, and shows how the relay does it.
func (q asking) request(ctx context.Context) error {
	who := q.flags.Who
	if who == "" {
		who = cli.UserAtHost()
	}
	id, err := q.st.AddRequest(ctx, q.kind, q.filter, who, q.flags.Note)
	if err != nil {
		return err
	}
	slot, err := q.st.Slot(ctx)
	if err != nil {
		return err
	}
	if q.flags.NoWait || !slot.Active && !q.flags.Wait {
		return q.left(ctx, id, slot.Active)
	}
	r, err := q.follow(ctx, id)
	switch {
	case err != nil:
		return err
	case q.a.JSON:
		if err := q.a.PrintJSON(r); err != nil {
			return err
		}
	default:
		fmt.Fprintln(q.a.Out, q.told(r))
	}
	if r.Error != "" {
		if q.a.JSON {
			return cli.ErrFailed
		}
		return fmt.Errorf("the relay refused request %d: %s", id, cli.Plain(r.Error))
	}
	return nil
}

// left tells of a request that the relay does by itself.
func (q asking) left(ctx context.Context, id int64, active bool) error {
	if q.a.JSON {
		r, err := q.st.Request(ctx, id)
		if err != nil {
			return err
		}
		return q.a.PrintJSON(r)
	}
	if active {
		fmt.Fprintf(q.a.Out, "%s: request %d is written down; the relay executes it now\n", q.kind, id)
	} else {
		fmt.Fprintf(q.a.Out, "%s: request %d is written down; no relay holds the slot %s, it will be executed when one runs\n", q.kind, id, q.slot)
	}
	return nil
}

// follow waits for the request and, for as long as something moves, for what it set in motion.
func (q asking) follow(ctx context.Context, id int64) (r *store.Request, err error) {
	bar := cli.NewBar(q.a)
	defer bar.End()
	ticker := time.NewTicker(requestLook)
	defer ticker.Stop()
	var done, waiting int64 = -1, -1
	moved := time.Now()
	for {
		if r, err = q.st.Request(ctx, id); err != nil {
			return nil, err
		}
		if r.Done != done || r.Waiting != waiting {
			done, waiting, moved = r.Done, r.Waiting, time.Now()
		}
		if r.FinishedAt != nil && (r.Waiting == 0 || time.Since(moved) > requestPatience) {
			return r, nil
		}
		if r.FinishedAt == nil && !q.flags.Wait && time.Since(moved) > requestPatience {
			return r, nil
		}
		if r.Total != nil {
			bar.Show(r.Done-r.Waiting, *r.Total)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("stopped waiting; request %d stays, and the relay executes it", id)
		}
	}
}

// told is the end of the request in a sentence.
func (q asking) told(r *store.Request) string {
	switch {
	case r.Error != "":
		return fmt.Sprintf("%s: request %d was refused", q.kind, r.ID)
	case r.StartedAt == nil:
		return fmt.Sprintf("%s: request %d is written down, and the relay has not taken it up: it is of an older version, or just starting", q.kind, r.ID)
	case r.FinishedAt == nil:
		return fmt.Sprintf("%s: request %d goes on: %d of %d %s so far", q.kind, r.ID, r.Done, Total(r), q.what)
	case q.what == "":
		return fmt.Sprintf("%s: done", q.kind)
	case r.Waiting > 0:
		return fmt.Sprintf("%s: %d of %d %s done; %d wait among the parked events and go out when they can: cdc-relay parked list", q.kind, r.Done-r.Waiting, Total(r), q.what, r.Waiting)
	}
	return fmt.Sprintf("%s: %d of %d %s done", q.kind, r.Done, Total(r), q.what)
}

// Total is of how many events a request is, 0 while that is not known.
func Total(r *store.Request) int64 {
	if r.Total == nil {
		return 0
	}
	return *r.Total
}

// Follow waits for a request of any kind, like the commands that wrote it.
func Follow(ctx context.Context, a *cli.App, st *store.Store, id int64) (*store.Request, error) {
	r, err := asking{a: a, st: st, flags: Flags{Wait: true}}.follow(ctx, id)
	if err == nil && r.Error != "" {
		err = fmt.Errorf("the relay refused request %d: %s", id, cli.Plain(r.Error))
	}
	return r, err
}
