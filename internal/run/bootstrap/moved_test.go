package bootstrap

import (
	"testing"

	"github.com/rs/zerolog"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/run/halt"
	"github.com/cdc-relay/cdc-relay/internal/store"
)

// Break it catches: what this process has confirmed on a primary that was lost taken for all that any relay has
// confirmed on the server that was promoted, where another one's epoch has the same number: a slot that this one has
// moved on in order would be taken for one that someone moved. Seen to fail with the timelines not compared, and with
// no slot taken for moved after a session of this process.
func TestASlotIsMovedOnlyPastWhatAnyRelayHasConfirmed(t *testing.T) {
	c := config.Default()
	c.Postgres.OnSlotLost = config.SlotLostHalt
	for _, test := range []struct {
		what  string
		state store.State
		slot  outbox.LSN
		moved bool
	}{
		{"clean", store.State{Epoch: 4, Timeline: 1, Confirmed: 50}, 50, false},
		{"clean, and the slot is ahead", store.State{Epoch: 4, Timeline: 1, Confirmed: 50}, 51, true},
		{"clean on a promoted server", store.State{Epoch: 4, Timeline: 2, Confirmed: 50}, 51, true},
		{"dirty by this process", store.State{Epoch: 5, Timeline: 1, Dirty: true, Confirmed: 50}, 100, false},
		{"dirty by this process, and the slot is ahead", store.State{Epoch: 5, Timeline: 1, Dirty: true, Confirmed: 50},
			101, true},
		{"dirty by another relay", store.State{Epoch: 6, Timeline: 1, Dirty: true, Confirmed: 50}, 101, false},
		{"dirty by another relay, under the same number", store.State{Epoch: 5, Timeline: 2, Dirty: true, Confirmed: 50},
			101, false},
	} {
		test.state.Phase = store.Stream
		s := Setup{Config: c, Logger: zerolog.Nop(), Last: LastSession{}.Next(Ended{Epoch: 5, Timeline: 1, Confirmed: 100})}
		s.Last = s.Last.Next(Ended{}) // one that never took over
		err := s.explainMoved(t.Context(), &test.state, store.SlotStatus{Exists: true, Confirmed: test.slot})
		if h := halt.Of(err); (h != nil && h.Code == halt.SlotMoved) != test.moved || h == nil && err != nil {
			t.Errorf("%s: got %v, want moved %t", test.what, err, test.moved)
		}
	}
}
