package queue

import (
	"strings"
)

// holdingDead are the places of dead letters that hold the lane of the row %: open ones with holds that are not on
// their way to be published again. They are looked for in an index that has only such dead letters.
const holdingDead = `SELECT h.epoch, h.from_stream, h.position_order, h.position_index FROM {dlq} h
WHERE h.source = %.source AND h.topic = %.topic AND md5(h.key) = md5(%.key) AND h.key = %.key AND h.holds
 AND h.replayed_at IS NULL AND h.discarded_at IS NULL
 AND NOT EXISTS (SELECT FROM {parked} w WHERE w.source = h.source AND w.event_id = h.original_id)`

// free is a condition, beginning with AND, on a row of the parked events by that name: no dead letter in front of it
// holds its lane.
func (s *Queue) free(row string) string {
	if !s.db.Config.HoldDead {
		return ""
	}
	place := strings.ReplaceAll(`(%.epoch, %.from_stream, %.position_order, %.position_index)`, "%", row)
	return ` AND ` + place + ` <= ALL (` + strings.ReplaceAll(holdingDead, "%", row) + `)`
}

// heldLanes adds, to lanes with their numbers of parked events, those that a dead letter holds.
func (s *Queue) heldLanes() string {
	if !s.db.Config.HoldDead {
		return ""
	}
	return ` UNION ALL SELECT DISTINCT source, topic, key, 0 FROM {dlq}
WHERE source = $1 AND holds AND key IS NOT NULL AND replayed_at IS NULL AND discarded_at IS NULL`
}
