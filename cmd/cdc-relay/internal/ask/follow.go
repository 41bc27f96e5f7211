package ask

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/internal/store"
)

// request writes down what is asked for, and shows how the relay does it.
func (q asking) request(ctx context.Context) error {
	id, err := q.st.AddRequest(ctx, q.kind, q.filter, q.flags.Name(), q.flags.Note)
	if err != nil {
		return err
	}
	return q.await(ctx, id)
}

// Await shows how the relay does a replay that was asked for.
func Await(ctx context.Context, a *cli.App, st *store.Store, slot string, flags Flags, id int64) error {
	q := asking{a: a, st: st, slot: slot, flags: flags, kind: store.RequestReplay, what: "dead letters"}
	return q.await(ctx, id)
}

// AwaitAll is Await for several replays, which the relay does one after another; it shows them as one.
func AwaitAll(ctx context.Context, a *cli.App, st *store.Store, slot string, flags Flags, ids []int64) error {
	q := asking{a: a, st: st, slot: slot, flags: flags, kind: store.RequestReplay, what: "dead letters"}
	return q.await(ctx, ids...)
}

// await shows how the relay does requests, for as long as that is wanted.
func (q asking) await(ctx context.Context, ids ...int64) error {
	slot, err := q.st.Slot(ctx)
	if err != nil {
		return err
	}
	patience := q.flags.patience(slot.Active)
	if patience == 0 {
		return q.left(ctx, ids[len(ids)-1], slot.Active)
	}
	begun := time.Now()
	var all *store.Request
	for _, id := range ids {
		r, err := q.follow(ctx, id, func(r *store.Request, _ time.Duration) bool {
			return r.FinishedAt != nil && r.Waiting == 0 || time.Since(begun) >= patience
		})
		if err == nil {
			err = q.st.Outcomes(ctx, r)
		}
		if err != nil {
			return err
		}
		all = together(all, r)
	}
	return q.ended(all)
}

// together is a request with the one before, as if they were one; nil: there is none.
func together(before, r *store.Request) *store.Request {
	if before == nil {
		return r
	}
	total := Total(before) + Total(r)
	r.Total, r.Done, r.Waiting = &total, before.Done+r.Done, before.Waiting+r.Waiting
	r.Error, r.StartedAt = cmp.Or(before.Error, r.Error), before.StartedAt
	if before.FinishedAt == nil {
		r.FinishedAt = nil
	}
	for _, o := range before.Outcomes {
		same := func(other store.Outcome) bool {
			return other.State == o.State && other.Topic == o.Topic && other.Code == o.Code
		}
		if i := slices.IndexFunc(r.Outcomes, same); i >= 0 {
			r.Outcomes[i].Events += o.Events
		} else {
			r.Outcomes = append(r.Outcomes, o)
		}
	}
	return r
}

// ended prints what the command has seen of the request, and fails it when that was refused, or brought a dead
// letter again.
func (q asking) ended(r *store.Request) error {
	if q.a.JSON {
		if err := q.a.PrintJSON(r); err != nil {
			return err
		}
	} else {
		cli.Fprintln(q.a.Out, q.told(r))
		q.outcomes(r)
	}
	switch {
	case r.Error != "" && !q.a.JSON:
		return fmt.Errorf("the relay refused request %d: %s", r.ID, cli.Plain(r.Error))
	case r.Error != "", r.Came(store.OutcomeDied) > 0:
		return cli.ErrFailed
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
		cli.Fprintf(q.a.Out, "%s: queued as request %d; the relay runs it now\n", q.kind, id)
	} else {
		cli.Fprintf(q.a.Out,
			"%s: queued as request %d; no relay is running on slot %s, so it runs when one starts\n", q.kind, id,
			q.slot)
	}
	return nil
}

// follow looks at the request, and at what it set in motion, until it is over: that is asked with the time since
// something moved.
func (q asking) follow(ctx context.Context, id int64,
	over func(r *store.Request, idle time.Duration) bool) (r *store.Request, err error) {
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
		if over(r, time.Since(moved)) {
			return r, nil
		}
		if r.Total != nil {
			bar.Show(r.Done-r.Waiting, *r.Total)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("stopped waiting; request %d stays queued, and the relay will run it", id)
		}
	}
}

// told is the end of the request in a sentence.
func (q asking) told(r *store.Request) string {
	switch {
	case r.Error != "":
		return fmt.Sprintf("%s: request %d was refused", q.kind, r.ID)
	case r.StartedAt == nil:
		return fmt.Sprintf("%s: request %d is queued, and the relay has not taken it up: it is of an older version, "+
			"or just starting", q.kind, r.ID)
	case r.FinishedAt == nil:
		return fmt.Sprintf("%s: request %d continues: %d of %d %s so far", q.kind, r.ID, r.Done, Total(r), q.what)
	case q.what == "":
		return fmt.Sprintf("%s: done", q.kind)
	case q.kind == store.RequestReplay:
		return q.toldReplay(r)
	}
	return fmt.Sprintf("%s: %d of %d %s %s", q.kind, r.Done, Total(r), q.what, became[q.kind])
}

// became says what a request did to events, in a word or two.
var became = map[string]string{
	store.RequestDiscard: "discarded", store.RequestRetry: "made due; the relay tries them now",
}

// Follow waits until a request of any kind is done, and, for as long as something moves, for what it set in motion.
func Follow(ctx context.Context, a *cli.App, st *store.Store, id int64) (*store.Request, error) {
	r, err := asking{a: a, st: st}.follow(ctx, id, func(r *store.Request, idle time.Duration) bool {
		return r.FinishedAt != nil && (r.Waiting == 0 || idle > requestPatience)
	})
	if err == nil && r.Error != "" {
		err = fmt.Errorf("the relay refused request %d: %s", id, cli.Plain(r.Error))
	}
	return r, err
}
