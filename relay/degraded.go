package relay

import (
	"fmt"
	"slices"
)

// The reasons for which a relay is degraded: names of a metric's label.
const (
	degradedTopic  = "topic"  // what goes to a topic, or to a part of it, is parked
	degradedMirror = "mirror" // published rows cannot be marked or deleted
	degradedAlarm  = "alarm"  // the broker lost or moved what it had acknowledged
)

var degradedReasons = []string{degradedTopic, degradedMirror, degradedAlarm}

// Degradation is what is wrong although events flow and the relay is ready: a restart, or another relay, would not help.
type Degradation struct {
	Reason string `json:"reason"` // topic, mirror, alarm
	Text   string `json:"text"`
}

// degradations are of the relay that holds the slot; never nil.
func (r *Relay) degradations() []Degradation {
	found := []Degradation{}
	if r.owner() == nil {
		return found
	}
	if t := r.term.Load(); t != nil {
		topics := t.settler.TroubledTopics()
		slices.Sort(topics)
		for _, topic := range topics {
			if why := t.settler.TroubleOf(topic); why != nil {
				text := fmt.Sprintf("topic %s is unavailable; its events are parked: %s", topic, why.Text)
				found = append(found, Degradation{degradedTopic, text})
			}
		}
	}
	if text := r.health.MarkTrouble(); text != "" {
		found = append(found, Degradation{degradedMirror, "published rows are not marked or deleted: " + text})
	}
	for _, a := range r.meter.Alarms() {
		found = append(found, Degradation{degradedAlarm, a.Text})
	}
	return found
}

// isDegraded reports whether it is, for the reason.
func (r *Relay) isDegraded(reason string) bool {
	return slices.ContainsFunc(r.degradations(), func(d Degradation) bool { return d.Reason == reason })
}

// state is the whole status in a word.
func (st *Status) state() string {
	switch {
	case st.Role == RoleActive && st.Paused != nil:
		return "paused"
	case st.Role == RoleActive && (!st.Ready || len(st.Degraded) > 0):
		return "degraded"
	case st.Role == RoleCatchUp:
		return "catching_up"
	}
	return string(st.Role)
}
