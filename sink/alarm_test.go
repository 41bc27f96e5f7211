package sink_test

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/sink"
)

// Breaks caught: an alarm that hides that of another topic, or another kind, before anybody has read it; counts of
// several topics that are one. Seen to fail with one alarm for all, and with kinds alone told apart.
func TestAlarmsOfOneTopicHideNoOthers(t *testing.T) {
	var b sink.AlarmBook
	var told []sink.Alarm
	for _, a := range []sink.Alarm{
		{Kind: sink.AlarmLostData, Topic: "a"}, {Kind: sink.AlarmLostData, Topic: "b"},
		{Kind: sink.AlarmOffsetsWentBack, Topic: "a"}, {Kind: sink.AlarmLostData, Topic: "a", Text: "again"},
	} {
		b.Raise(a, func(a sink.Alarm) { told = append(told, a) })
	}
	all := b.Alarms()
	if len(all) != 3 || all[2].Text != "again" || all[2].Count != 2 || all[0].Topic != "b" || all[0].Count != 1 {
		t.Errorf("alarms: got %+v, want the latest of each kind and topic, oldest first, a's second one counted", all)
	}
	if len(told) != 4 || told[3].Count != 2 || told[3].At.IsZero() {
		t.Errorf("told: got %+v, want each as it was noted", told)
	}
	b.Raise(sink.Alarm{Kind: sink.AlarmLostData, Topic: "c"}, nil)
}
