package relay

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cdc-relay/cdc-relay/store"
)

var (
	slotRetained = definition{"cdc_slot_retained_wal_bytes", "gauge", "WAL that Postgres keeps for the slot.", nil}
	slotSafe     = definition{"cdc_slot_safe_wal_bytes", "gauge", "WAL that can still be written before the slot may be lost; -1 without a limit.", nil}
	slotStatus   = definition{"cdc_slot_status", "gauge", "1 for what pg_replication_slots says of the slot's WAL.", []string{"status"}}

	slotRetainedDesc, slotSafeDesc, slotStatusDesc = slotRetained.desc(), slotSafe.desc(), slotStatus.desc()
)

// walStatuses are those of pg_replication_slots.
var walStatuses = []string{"reserved", "extended", "unreserved", "lost"}

// slotFresh is for how long a look at the slot is shown. A zero in its place would be read as "no WAL is kept".
const slotFresh = 5 * slotEvery

// slotLook is the slot as it was at a time.
type slotLook struct {
	store.SlotStatus
	at time.Time
}

// SlotLook is the replication slot as it was seen last. Names in JSON are stable.
type SlotLook struct {
	At        time.Time `json:"at"`
	Name      string    `json:"name"`
	Exists    bool      `json:"exists"`
	Active    bool      `json:"active"`
	Status    string    `json:"wal_status"` // reserved, extended, unreserved, lost; "" before it is reserved
	Retained  int64     `json:"retained_wal_bytes"`
	Safe      *int64    `json:"safe_wal_bytes"` // null: no limit
	Confirmed string    `json:"confirmed_lsn"`
	Restart   string    `json:"restart_lsn"`
	WALEnd    string    `json:"wal_end_lsn"`
}

// Slot is the slot as this process saw it last; nil when it has not, or not for some time.
func (r *Relay) Slot() *SlotLook {
	s := r.metrics.slot.Load()
	if s == nil || time.Since(s.at) > slotFresh {
		return nil
	}
	return &SlotLook{
		At: s.at, Name: r.c.Postgres.Slot, Exists: s.Exists, Active: s.Active, Status: s.WALStatus, Retained: s.RetainedBytes, Safe: s.SafeWALSize,
		Confirmed: s.Confirmed.String(), Restart: s.Restart.String(), WALEnd: s.WALEnd.String(),
	}
}

// slotCollector shows what was last read of the slot, as long as that is news and another relay does not hold the slot.
type slotCollector struct{ r *Relay }

func (slotCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- slotRetainedDesc
	ch <- slotSafeDesc
	ch <- slotStatusDesc
}

func (c slotCollector) Collect(ch chan<- prometheus.Metric) {
	s := c.r.metrics.slot.Load()
	if s == nil || !s.Exists || time.Since(s.at) > slotFresh || c.r.health.Role() == RoleStandby {
		return
	}
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	gauge(slotRetainedDesc, float64(s.RetainedBytes))
	safe := -1.0
	if s.SafeWALSize != nil {
		safe = float64(*s.SafeWALSize)
	}
	gauge(slotSafeDesc, safe)
	for _, status := range walStatuses {
		gauge(slotStatusDesc, indicator(s.WALStatus == status), status)
	}
}

// indicator is 1 for true.
func indicator(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
