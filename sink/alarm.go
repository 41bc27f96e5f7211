package sink

import "time"

// The kinds of [Alarm]: names of a metric's label.
const (
	AlarmLostData         = "lost_data"          // a broker forgot what it had acknowledged
	AlarmOffsetsWentBack  = "offsets_went_back"  // a log was cut, or its topic deleted and created again
	AlarmPartitionChanged = "partitions_changed" // keys may be in another partition from now on
)

// Alarms are the kinds that there are.
var Alarms = []string{AlarmLostData, AlarmOffsetsWentBack, AlarmPartitionChanged}

// Alarm is what a driver noticed at its broker and nothing on this side can mend: a person must look.
type Alarm struct {
	Kind      string    `json:"kind"`
	Topic     string    `json:"topic"`
	Partition int32     `json:"partition"` // WholeTopic: the topic itself
	At        time.Time `json:"at"`
	Text      string    `json:"text"`  // what happened, what is at risk, what to do
	Count     uint64    `json:"count"` // alarms of this kind and topic so far, this one included
}

// Witness is a [Driver] that remembers what only it can see. Its methods may be called at any time from any goroutine.
type Witness interface {
	// PossibleDuplicates counts the records that may be in a topic twice: their outcome was unknown, and they were sent
	// again in a way that the broker cannot recognise.
	PossibleDuplicates() uint64
	// Alarms are the latest alarm of each kind and topic, oldest first.
	Alarms() []Alarm
}
