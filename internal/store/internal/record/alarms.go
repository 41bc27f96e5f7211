package record

import (
	"errors"
	"time"
)

// Alarm is something that a topic lost or moved, and that only a person can judge. It is open until one acknowledges
// it. Names in JSON are stable.
type Alarm struct {
	ID        int64      `json:"id"` // 0: not stored yet
	Kind      string     `json:"kind"`
	Topic     string     `json:"topic"`
	Partition int32      `json:"partition"` // that it was seen at last; -1: the topic as a whole
	Text      string     `json:"text"`      // what happened last
	FirstSeen time.Time  `json:"first_seen_at"`
	At        time.Time  `json:"at"`               // when it was seen last
	Count     int64      `json:"count"`            // how often it was seen
	Repair    string     `json:"repair,omitempty"` // the command that brings back what was lost
	AckedAt   *time.Time `json:"acknowledged_at,omitempty"`
	AckedBy   string     `json:"acknowledged_by,omitempty"`
	AckedNote string     `json:"acknowledged_note,omitempty"`
}

// ErrNoAlarm reports that no open alarm with a number that was named.
var ErrNoAlarm = errors.New("no open alarm")
