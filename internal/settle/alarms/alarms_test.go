package alarms

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/sink"
)

// played is a database that answers or not, and the relay that holds the slot.
type played struct{ away atomic.Bool }

func (p *played) RaiseAlarm(context.Context, store.Alarm) error {
	_, err := p.Alarms(context.Background(), false)
	return err
}

func (p *played) Alarms(context.Context, bool) ([]store.Alarm, error) {
	if p.away.Load() {
		return nil, errors.New("away")
	}
	return nil, nil
}

func (*played) Owns() bool                      { return true }
func (*played) Idle() bool                      { return true }
func (*played) CannotRecord(string, error) bool { return false }
func (*played) Recorded(string)                 {}

// Break it catches: "no alarm is open" where the alarms were not read, or not lately, and one that this process has
// noticed taken for unknown.
func TestOpenAlarmsAreKnownWhileTheyAreRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer cancel()
		k, p := New(nil, RepairOutbox), &played{}
		want := func(when, kind string, want bool) {
			t.Helper()
			if _, known := k.OpenOf(kind); known != want {
				t.Errorf("%s, %s: known %t, want %t", when, kind, known, want)
			}
		}
		want("before they were read", sink.AlarmLostData, false)
		go k.Run(ctx, p, p)
		time.Sleep(readEvery)
		synctest.Wait()
		want("read", sink.AlarmLostData, true)
		p.away.Store(true)
		time.Sleep(2 * knownFor)
		synctest.Wait()
		want("while the database is away", sink.AlarmLostData, false)
		k.Raise(sink.Alarm{Kind: sink.AlarmIDsReused, Topic: "t"})
		want("noticed meanwhile", sink.AlarmIDsReused, true)
		want("beside one that was noticed", sink.AlarmLostData, false)
	})
}

// Breaks it catches: a repair that the command refuses with several outboxes; one where nothing was lost.
func TestAlarmsNameTheirRepair(t *testing.T) {
	for _, repair := range []string{RepairOutbox, RepairOutboxes} {
		k := New(nil, repair)
		k.Raise(sink.Alarm{Kind: sink.AlarmLostData, Topic: "t", Count: 1})
		k.Raise(sink.Alarm{Kind: sink.AlarmIDsReused, Topic: "t", Count: 1})
		for _, a := range k.Open() {
			if want := map[string]string{sink.AlarmLostData: repair}[a.Kind]; a.Repair != want {
				t.Errorf("%s: got repair %q, want %q", a.Kind, a.Repair, want)
			}
		}
		if got := len(k.Open()); got != 2 {
			t.Errorf("got %d alarms, want both", got)
		}
	}
}
