package ask

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/internal/store"
)

// toldReplay describes the outcome of a replay in a sentence.
func (q asking) toldReplay(r *store.Request) string {
	published := r.Came(store.OutcomePublished)
	parts := []string{fmt.Sprintf("%d of %d %s published", published, Total(r), q.what)}
	for _, state := range []string{store.OutcomeParked, store.OutcomeDied, store.OutcomeBehind, store.OutcomeDiscarded} {
		if n := r.Came(state); n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, state))
		}
	}
	return fmt.Sprintf("%s: %s", q.kind, strings.Join(parts, ", "))
}

// mostOutcomes is how many reasons are listed for people; JSON has all.
const mostOutcomes = 20

// outcomes lists why a replay's events were not published, and what to do about it.
func (q asking) outcomes(r *store.Request) {
	w := tabwriter.NewWriter(q.a.Out, 0, 0, 2, ' ', 0)
	listed := 0
	for _, o := range r.Outcomes {
		if o.State == store.OutcomePublished {
			continue
		}
		if listed++; listed > mostOutcomes {
			continue
		}
		reason := "not tried yet; cdc-relay check shows problems of its topic"
		switch {
		case o.State == store.OutcomeBehind:
			reason = "not sent: an earlier event of its key is a dead letter again"
		case o.Code != "":
			reason = cli.Plain(o.Code) + ": " + cli.Plain(o.Reason)
		}
		cli.Fprintf(w, "  %s\t%d\t%s\t%s\n", o.State, o.Events, cli.Plain(o.Topic), reason)
	}
	_ = w.Flush() // the output remembers what it could not take
	if listed > mostOutcomes {
		cli.Fprintf(q.a.Out, "  and %d more reasons: --json has all\n", listed-mostOutcomes)
	}
	if r.Came(store.OutcomeDied) > 0 {
		cli.Fprintln(q.a.Out,
			"Events that failed again are open dead letters. Fix the cause, then replay them: cdc-relay dlq list")
	}
	if r.Came(store.OutcomeBehind) > 0 {
		cli.Fprintln(q.a.Out, "Those that stayed behind are open dead letters, too: replay them with the one in front of "+
			"them, or by themselves to let them pass it")
	}
	if r.Came(store.OutcomeParked) > 0 {
		cli.Fprintln(q.a.Out,
			"The relay keeps retrying parked events: cdc-relay parked list. Wait longer with --timeout DURATION")
	}
}

// Total is of how many events a request is, 0 while that is not known.
func Total(r *store.Request) int64 {
	if r.Total == nil {
		return 0
	}
	return *r.Total
}
