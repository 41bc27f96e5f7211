// Package show prints for people what commands have found out: on a terminal in colour. For machines commands print
// JSON themselves.
//
// Tested by what commands print (cmd/cdc-relay).
package show

import (
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/relay"
)

// Status prints what a running relay says of itself.
func Status(a *cli.App, st relay.Status, now time.Time) {
	line := func(name, format string, args ...any) {
		cli.Fprintf(a.Out, "%-14s %s\n", name, fmt.Sprintf(format, args...))
	}
	ready := a.Paint(cli.Green, "ready")
	switch {
	case !st.Ready:
		ready = a.Paint(cli.Red, "not ready")
	case len(st.Degraded) > 0:
		ready = a.Paint(cli.Yellow, "ready, degraded")
	}
	line("relay", "%s %s, up %s", st.Service, st.Version, now.Sub(st.Started).Round(time.Second))
	line("role", "%s for %s, %s", st.Role, now.Sub(st.Since).Round(time.Second), ready)
	for _, reason := range st.Reasons {
		line("", "%s", a.Paint(cli.Red, reason))
	}
	for _, d := range st.Degraded {
		line("degraded", "%s", a.Paint(cli.Yellow, fmt.Sprintf("%s: %s", d.Reason, cli.Plain(d.Text))))
	}
	if p := st.Paused; p != nil {
		line("paused", "%s", a.Paint(cli.Yellow,
			fmt.Sprintf("by %s for %s%s", cli.Plain(p.By), now.Sub(p.Since).Round(time.Second), cli.Note(p.Note))))
	}
	if st.Role == relay.RoleStandby {
		line("slot", "%s, held by another relay; ask that one for lag, rates and what is parked", st.Slot)
	} else {
		printFlow(st, line)
	}
	line("broker", "%s", st.Broker)
	for _, alarm := range st.Alarms {
		text := fmt.Sprintf("%d, %s ago, %d so far, topic %s partition %d: %s", alarm.ID,
			now.Sub(alarm.At).Round(time.Second), alarm.Count, alarm.Topic, alarm.Partition, alarm.Text)
		if alarm.Repair != "" {
			text += "; repair: " + alarm.Repair
		}
		line("alarm", "%s", a.Paint(cli.Red, fmt.Sprintf("%s; then: cdc-relay alarms ack %d", text, alarm.ID)))
	}
	if i := st.Interleaved; i != nil && i.Total > 0 {
		last := i.Last[len(i.Last)-1]
		line("interleaved", "%s", a.Paint(cli.Yellow, fmt.Sprintf("writers of one aggregate overlapped %d times, last %s "+
			"ago: %s/%s, event %s was inserted before %s and committed behind it; see docs/emit.md", i.Total,
			now.Sub(last.At).Round(time.Second), cli.Plain(last.AggregateType), cli.Plain(last.AggregateID),
			cli.Plain(last.Event), cli.Plain(last.Before))))
	}
	if st.LookingUp {
		line("restart", "looking up what was published before")
	}
	if st.LastErrorAt != nil {
		over := ""
		if st.LastErrorOver {
			over = ", and it is over"
		}
		line("last error", "%s ago%s: %s", now.Sub(*st.LastErrorAt).Round(time.Second), over, cli.Plain(st.LastError))
	}
	if st.Halt != nil {
		line("halted", "%s: %s", a.Paint(cli.Red, st.Halt.Code), st.Halt.Reason)
		line("at risk", "%s", st.Halt.Risk)
		line("to do", "%s", st.Halt.Remedy)
	}
}

// printFlow prints the figures of the relay that holds the slot; "-" stands for unmeasured ones.
func printFlow(st relay.Status, line func(name, format string, args ...any)) {
	const unmeasured = "-"
	lag, rates := unmeasured, unmeasured
	if st.LagBytes != nil {
		lag = fmt.Sprintf("%s of WAL, oldest unconfirmed transaction %s ago, the slot keeps %s",
			cli.Figure(st.LagBytes, cli.Bytes), cli.Figure(st.LagSeconds, seconds), cli.Figure(st.RetainedWAL, cli.Bytes))
	}
	if r := st.Rates; r != nil {
		rates = fmt.Sprintf("%.1f events/s published, %.1f/s received, over the last %.0f s", r.Published, r.Received,
			r.Seconds)
	}
	line("slot", "%s, epoch %s, received %s, confirmed %s", st.Slot, cli.Figure(st.Epoch, cli.Whole),
		cli.Figure(st.ReceivedLSN, cli.Plain), cli.Figure(st.ConfirmedLSN, cli.Plain))
	line("lag", "%s", lag)
	printServer(st, line)
	line("rates", "%s", rates)
	line("backlog", "%s events, %d in flight (%s), %d sent and not yet journaled",
		cli.Figure(st.Backlog, cli.Whole), st.InFlight, cli.Bytes(int64(st.InFlightBytes)), st.Unrecorded)
	if st.OldestPending != nil && *st.OldestPending > 0 {
		line("oldest", "the oldest event that is not published, parked ones included, is %s old",
			seconds(*st.OldestPending))
	}
	if st.Spooled != nil && *st.Spooled > 0 {
		line("spooled", "%s events, stored in cdc_relay_spool until they can be sent", cli.Whole(*st.Spooled))
	}
	printMarks(st, line)
	line("events", "%d received, %d settled", st.Received, st.Settled)
	line("parked keys", "%s, with %s events", cli.Figure(st.ParkedKeys, cli.Whole), cli.Figure(st.ParkedEvents, cli.Whole))
	line("dead letters", "%s", cli.Figure(st.DeadLetters, cli.Whole))
}

// serverDoes says what the server's side of the stream is at.
var serverDoes = map[string]string{
	"caught_up": "has worked through the WAL",
	"sending":   "sends events",
	"decoding": "works through WAL without events for this relay, or through a large transaction before its end; " +
		"later events wait for the server, not for the relay",
	"blocked": "blocked by the relay or the network: see the broker",
}

// printServer prints what the server's side of the stream is at, as far as it can be told.
func printServer(st relay.Status, line func(name, format string, args ...any)) {
	w := st.Walsender
	if w == nil {
		return
	}
	text := "unknown"
	if w.State != nil {
		text = serverDoes[*w.State]
	}
	if w.State == nil || *w.State != "caught_up" {
		text += fmt.Sprintf("; %s of WAL to go, the oldest for %s", cli.Figure(w.BehindBytes, cli.Bytes),
			cli.Figure(w.BehindSeconds, seconds))
		if w.WaitEvent != "" {
			text += ", now in " + cli.Plain(w.WaitEvent)
		}
	}
	line("server", "%s", text)
	if w.SpilledTransactions > 0 {
		line("", "%d transactions were larger than logical_decoding_work_mem so far: %s went to files",
			w.SpilledTransactions, cli.Bytes(w.SpilledBytes))
	}
}

// printMarks prints how far the marks are, while they are behind.
func printMarks(st relay.Status, line func(name, format string, args ...any)) {
	if st.MirrorLag == nil || *st.MirrorLag == 0 {
		return
	}
	text := fmt.Sprintf("%d published rows are not marked or deleted yet", *st.MirrorLag)
	if st.MirrorAge != nil {
		text += ", the oldest for " + seconds(*st.MirrorAge)
	}
	if r := st.Rates; r != nil {
		text += fmt.Sprintf("; %.1f rows/s over the last %.0f s", r.Marked, r.Seconds)
	}
	line("marks", "%s", text)
}

func seconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(time.Millisecond).String()
}
