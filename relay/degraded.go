package relay

import (
	"fmt"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/sink"
)

// This file tells what is wrong although events flow. Any goroutine may call what is here.

// The reasons for which a relay is degraded: names of a metric's label.
const (
	degradedTopic  = "topic"  // what goes to a topic, or to a part of it, is parked
	degradedMirror = "mirror" // published rows cannot be marked or deleted
	degradedAlarm  = "alarm"  // the broker lost or moved what it had acknowledged

	degradedSpool       = "spool"       // events go through cdc_relay_spool
	degradedTransaction = "transaction" // one is open that keeps rows from being marked or deleted
	degradedThrottled   = "throttled"   // the broker slows the relay down
	degradedOutbox      = "outbox"      // tables that outbox.tables chooses are not published

	// DegradedConfiguration is the reason of what WithDegradations adds.
	DegradedConfiguration = "configuration"
)

var degradedReasons = []string{degradedTopic, degradedMirror, degradedAlarm, degradedSpool, degradedTransaction,
	degradedThrottled}

// listedTopics bounds the unavailable topics that a status lists: rows can name thousands, and /readyz shows the list
// to anyone.
const listedTopics = 20

// Degradation is a problem although events flow and the relay is ready: a restart, or another relay, would not
// help.
type Degradation struct {
	Reason string `json:"reason"` // topic, mirror, alarm, spool, transaction, throttled, outbox, configuration
	Text   string `json:"text"`
}

// degradations are of the relay that holds the slot, but for the program's own; never nil.
func (r *Relay) degradations() []Degradation {
	found := []Degradation{}
	if r.concerns != nil {
		found = append(found, r.concerns()...)
	}
	if r.owner() == nil {
		return found
	}
	if t := r.term.Load(); t != nil {
		topics := t.settler.TroubledTopics()
		slices.Sort(topics)
		shown := topics[:min(len(topics), listedTopics)]
		for _, topic := range shown {
			if why := t.settler.TroubleOf(topic); why != nil {
				text := fmt.Sprintf("%s %s is unavailable; %s: %s", r.word(), topic, t.waitingOf(topic), why.Text)
				found = append(found, Degradation{degradedTopic, text})
			}
		}
		if more := len(topics) - len(shown); more > 0 {
			text := fmt.Sprintf("%d more topics are unavailable; cdc-relay parked list shows their events", more)
			found = append(found, Degradation{degradedTopic, text})
		}
	}
	if t := r.term.Load(); t != nil {
		if most, full := t.names.Full(); full {
			found = append(found, Degradation{degradedTopic, fmt.Sprintf("rows name more topics than limits.topics = %d: "+
				"events for further ones become dead letters (%s); raise the limit, restart and replay them, or have "+
				"message.topic name a column with fewer values", most, outbox.TopicLimit)})
		}
	}
	if t := r.term.Load(); t != nil {
		if text := t.throttled(t.engine.Status()); text != "" {
			found = append(found, Degradation{degradedThrottled, text})
		}
	}
	if s := r.session(); s != nil {
		found = append(found, s.spoolDegrades()...)
	}
	if r.outboxes != nil {
		if text := r.outboxes.Unpublished(); text != "" {
			found = append(found, Degradation{degradedOutbox, text})
		}
		for _, text := range r.outboxes.LeftOut() {
			found = append(found, Degradation{degradedOutbox, text})
		}
	}
	if text := r.health.MarkTrouble(); text != "" {
		found = append(found, Degradation{degradedMirror, "published rows are not marked or deleted: " + text})
	}
	for _, text := range r.blockers.Found() {
		found = append(found, Degradation{degradedTransaction, "rows published since are not marked or deleted: " + text})
	}
	for _, a := range r.alarms.Open() {
		text := fmt.Sprintf("topic %s: %s", a.Topic, a.Text)
		if a.Repair != "" {
			text += "; repair: " + a.Repair
		}
		found = append(found, Degradation{degradedAlarm, fmt.Sprintf("%s; then: cdc-relay alarms ack %d", text, a.ID)})
	}
	return found
}

// isDegraded reports whether it is, for the reason.
func (r *Relay) isDegraded(reason string) bool {
	return slices.ContainsFunc(r.degradations(), func(d Degradation) bool { return d.Reason == reason })
}

const throttledBroker = "throttled: " // begins Status.Broker where nothing is wrong but the pace

// slowed is a driver whose server may hold back publishers without an error; "": it does not.
type slowed interface{ Slowed() string }

// throttled says why the broker takes events more slowly than they come; "": it does not.
func (t *term) throttled(q sink.Status) string {
	if driver, tells := t.r.driver.(slowed); tells {
		if text := driver.Slowed(); text != "" {
			return text
		}
	}
	if q.Throttle == 0 {
		return ""
	}
	return fmt.Sprintf("a limit of the broker is reached, such as a quota: it asks for pauses of up to %v between "+
		"requests. Events wait in order; if that lasts, raise the limit", q.Throttle.Round(time.Millisecond))
}
