package kafka

import (
	"fmt"

	"github.com/cdc-relay/cdc-relay/sink"
)

var _ sink.Witness = (*Driver)(nil)

// PossibleDuplicates is [sink.Witness].
func (d *Driver) PossibleDuplicates() uint64 { return d.stats.possibleDuplicates.Load() }

// Alarms is [sink.Witness].
func (d *Driver) Alarms() []sink.Alarm { return d.alarms.Alarms() }

// raise notes an alarm and tells the hook.
func (d *Driver) raise(a sink.Alarm) { d.alarms.Raise(a, d.config.Hooks.Alarm) }

// lostData is the alarm for a sequence that the broker refuses although everything before it was acknowledged.
func (d *Driver) lostData(p *partition) {
	d.raise(sink.Alarm{Kind: sink.AlarmLostData, Topic: p.topic, Partition: p.id, Text: fmt.Sprintf(
		"the broker forgot a batch that it had acknowledged (the last acknowledged offset is %d): "+
			"the partition has lost records (an unclean leader election, a disk that was replaced), or its topic was deleted "+
			"and created again; "+
			"run cdc-relay verify", p.lastAcked)})
}

// noteOffset compares the offset of an accepted batch with what was acknowledged before: offsets only grow, unless the
// topic was deleted and created again, or a leader without the latest records took over.
func (d *Driver) noteOffset(p *partition, first int64) {
	if first < 0 || first > p.lastAcked {
		return
	}
	d.raise(sink.Alarm{Kind: sink.AlarmOffsetsWentBack, Topic: p.topic, Partition: p.id, Text: fmt.Sprintf(
		"a batch was written at offset %d although offset %d had been acknowledged: the topic was deleted and created "+
			"again, or the partition "+
			"has lost its latest records. What was there is gone, and consumers see what comes now behind offsets that they "+
			"may have passed; "+
			"run cdc-relay verify", first, p.lastAcked)})
}
