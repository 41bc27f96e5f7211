package sink

import (
	"slices"
	"sync"
	"time"
)

// The kinds of [Alarm]: names of a metric's label.
const (
	AlarmLostData         = "lost_data"          // a broker forgot what it had acknowledged
	AlarmOffsetsWentBack  = "offsets_went_back"  // a log was cut, or its topic deleted and created again
	AlarmPartitionChanged = "partitions_changed" // keys may be in another partition from now on
	AlarmIDsReused        = "ids_reused"         // an id is recorded of this event, or of another one: it was sent
	AlarmClusterChanged   = "cluster_changed"    // another cluster answers than the one that topics were journaled on
)

// Alarms lists all kinds.
var Alarms = []string{AlarmLostData, AlarmOffsetsWentBack, AlarmPartitionChanged, AlarmIDsReused, AlarmClusterChanged}

// Alarm reports a problem at the broker that a person must look into.
type Alarm struct {
	Kind      string    `json:"kind"`
	Topic     string    `json:"topic"`
	Partition int32     `json:"partition"` // WholeTopic: the topic itself
	At        time.Time `json:"at"`
	Text      string    `json:"text"`  // what happened, what is at risk, what to do
	Count     uint64    `json:"count"` // alarms of this kind and topic so far, this one included
}

// Witness is a [Driver] that counts possible duplicates and keeps alarms. Its methods may be called at any time from
// any goroutine.
type Witness interface {
	// PossibleDuplicates counts the records that may be in a topic twice: their outcome was unknown, and they were sent
	// again in a way that the broker cannot recognise.
	PossibleDuplicates() uint64
	// Alarms are the latest alarm of each kind and topic, oldest first.
	Alarms() []Alarm
}

// AlarmBook keeps what a [Witness] has noticed: the latest alarm of each kind and topic. Topics that the driver knows
// bound it. The zero value is empty; any goroutine may use it.
type AlarmBook struct {
	mu     sync.Mutex
	latest map[alarmed]Alarm // guarded by mu
}

// alarmed is the key by which alarms are counted.
type alarmed struct{ kind, topic string }

// Raise records an alarm and calls the hook, if there is one.
func (b *AlarmBook) Raise(a Alarm, tell func(Alarm)) {
	of := alarmed{a.Kind, a.Topic}
	b.mu.Lock()
	if b.latest == nil {
		b.latest = map[alarmed]Alarm{}
	}
	a.At, a.Count = time.Now(), b.latest[of].Count+1
	b.latest[of] = a
	b.mu.Unlock()
	if tell != nil {
		tell(a)
	}
}

// Alarms implements [Witness].
func (b *AlarmBook) Alarms() []Alarm {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make([]Alarm, 0, len(b.latest))
	for _, a := range b.latest {
		all = append(all, a)
	}
	slices.SortFunc(all, func(a, b Alarm) int { return a.At.Compare(b.At) })
	return all
}
