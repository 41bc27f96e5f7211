package show

import (
	"fmt"

	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/relay"
)

// DryReconcile prints what a look through the whole table has found, when nothing was to be published.
func DryReconcile(a *cli.App, r relay.DryReport) {
	cli.Fprintf(a.Out, "unrecorded  %d rows at the time of the check\n", r.Unrecorded)
	const missed = "missed      "
	switch {
	case r.Proved && r.Missed == 0:
		cli.Fprintln(a.Out, missed+a.Paint(cli.Green, "none")+": everything that was committed was delivered and is recorded")
	case r.Proved:
		cli.Fprintln(a.Out, missed+a.Paint(cli.Red, fmt.Sprint(r.Missed))+
			" rows were never delivered by the stream; the running relay publishes them at its next look")
	case r.CatchingUp:
		cli.Fprintln(a.Out, missed+
			"unknown: the relay publishes rows from the table before it streams; ask again when it does (cdc-relay status)")
	case r.Streaming && r.Spooled > 0:
		cli.Fprintf(a.Out, missed+"unknown: %d events are stored in cdc_relay_spool until they can be sent (see cdc-relay "+
			"status); wait longer with --wait\n", r.Spooled)
	case r.Streaming:
		cli.Fprintln(a.Out, missed+
			"unknown: the relay has not recorded in time what was committed (see cdc-relay status); wait longer with --wait")
	default:
		cli.Fprintln(a.Out, missed+
			"unknown: no relay is streaming, and the slot may still hold these rows; start one, or run without --dry-run")
		if r.Spooled > 0 {
			cli.Fprintf(a.Out, "spooled     %d events are stored in cdc_relay_spool; the next relay sends them first\n",
				r.Spooled)
		}
	}
}

// AskedReconcile prints what the running relay has found and published at a request.
func AskedReconcile(a *cli.App, request int64, r relay.ReconcileReport) {
	cli.Fprintf(a.Out, "the running relay reconciled (request %d)\nunrecorded  %d rows at the time of the check\n",
		request, r.Unrecorded)
	cli.Fprintf(a.Out, "missed      %d rows were never delivered by the stream, and are published now\n", r.Missed)
}

// Reconcile prints what a relay in this process has found and published.
func Reconcile(a *cli.App, r relay.ReconcileReport) {
	cli.Fprintln(a.Out, "no relay was running, so this command relayed what waited and reconciled")
	if r.CaughtUp > 0 {
		cli.Fprintf(a.Out, "caught up   %d rows were published from the table first: "+
			"they are older than the slot, or it had been moved past them\n", r.CaughtUp)
	}
	cli.Fprintf(a.Out, "unrecorded  %d rows at the check after that\n", r.Unrecorded)
	cli.Fprintf(a.Out, "missed      %d rows were never delivered by the stream, and are published now\n", r.Missed)
}
