package peers

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// tables are the outcomes as Markdown: what each costs when nothing is wrong, and what became of each in each fault.
func tables(all []outcome) string {
	var text strings.Builder
	text.WriteString("| no fault | p50 | p99 | CPU s per million | of Postgres, the load's included | lost | doubled " +
		"| out of order |\n|---|---|---|---|---|---|---|---|\n")
	for _, o := range all {
		if o.fault != noFault {
			continue
		}
		if o.skipped != "" {
			fmt.Fprintf(&text, "| %s | %s | | | | | | |\n", o.peer, o.skipped)
			continue
		}
		waits, _ := o.waits(o.run.w.settings.Topic(mainType), o.from, o.to)
		fmt.Fprintf(&text, "| %s | %s | %s | %.0f | %.0f | %d | %d | %d |\n", o.peer, millis(quantile(waits, 0.5)),
			millis(quantile(waits, 0.99)), perMillion(o.peerCPU, o.run.events), perMillion(o.postgresCPU, o.run.events),
			o.lost, o.doubled, o.disordered)
	}
	text.WriteString("\n| fault | peer | events | lost | doubled | out of order | recovery | others meanwhile " +
		"| CPU s per million | |\n|---|---|---|---|---|---|---|---|---|---|\n")
	for _, o := range all {
		switch {
		case o.fault == noFault:
		case o.skipped != "":
			fmt.Fprintf(&text, "| %s | %s | | | | | | | | %s |\n", o.fault, o.peer, o.skipped)
		default:
			fmt.Fprintf(&text, "| %s | %s | %d | %d | %d | %d | %s | %s | %.0f | %s |\n", o.fault, o.peer,
				len(o.verdict.events), o.lost, o.doubled, o.disordered, o.recoveries(), o.meanwhile(),
				perMillion(o.peerCPU, o.run.events), o.remarks())
		}
	}
	return text.String()
}

// recoveries is how long the recovery took: of several faults the median and the longest.
func (o outcome) recoveries() string {
	var each []time.Duration
	for _, end := range o.ends {
		each = append(each, o.recovery(end))
	}
	slices.Sort(each)
	if len(each) == 1 {
		return seconds(each[0])
	}
	return seconds(quantile(each, 0.5)) + ", " + seconds(each[len(each)-1])
}

// in the meantime is how long those events waited that were committed while the fault lasted, and had no part in it.
func (o outcome) meanwhile() string {
	if o.from.IsZero() {
		return ""
	}
	waits, never := o.waits(o.run.w.settings.Topic(mainType), o.from, o.to)
	said := fmt.Sprintf("p50 %s, longest %s", seconds(quantile(waits, 0.5)), seconds(quantile(waits, 1)))
	if never > 0 {
		said += fmt.Sprintf(", %d never came", never)
	}
	return said
}

// remarks returns the notes on a row.
func (o outcome) remarks() string {
	said := []string{}
	add := func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }
	if o.bad != "" {
		switch o.sent {
		case 0:
			add("the poison event: not sent")
		case 1:
			add("the poison event: sent once it was allowed")
		default:
			add("the poison event: sent %d times", o.sent)
		}
	}
	if n := o.run.peer.ended; n > 0 {
		add("ended %d times by itself", n)
	}
	if o.waiting > 0 {
		add("given up when %d had not come: late or lost", o.waiting)
	}
	if o.byHand > 0 {
		add("stood until restarted by hand")
	}
	if o.rewritten > 0 {
		add("%.0f %% of its records have other bytes than the row", 100*float64(o.rewritten)/float64(o.report.Seen))
	}
	if o.other > 0 {
		add("%d other findings: %v", o.other, o.report)
	}
	return strings.Join(said, "; ")
}

func millis(d time.Duration) string {
	if d < time.Millisecond {
		return "< 1 ms"
	}
	return fmt.Sprintf("%d ms", d.Milliseconds())
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

// perMillion is CPU seconds per million events.
func perMillion(d time.Duration, events int) float64 {
	return d.Seconds() / float64(max(1, events)) * 1e6
}
