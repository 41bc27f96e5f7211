package meter

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/internal/watch/health"
)

// A person on call must know whether events wait for the server or the relay, and a guess is worse than none.
// Breaks it catches: a server at work on what is not ours that is not told of, and each other case told as that one.
// Seen to fail with the relay's own wait, the events that came, the position and the hidden session each left out of
// account.
func TestTheServerIsSaidToDecodeOnlyWhenItDoes(t *testing.T) {
	runs := store.Walsender{Visible: true}
	reads := store.Walsender{Visible: true, Waits: "IO", WaitsFor: "ReorderBufferRead"}
	hidden, spills := store.Walsender{}, store.Walsender{SpilledTransactions: 1, SpilledBytes: 1 << 20}
	client := func(event string) store.Walsender {
		return store.Walsender{Visible: true, Waits: "Client", WaitsFor: event}
	}
	waits := store.Walsender{Visible: true, Waits: "IPC", WaitsFor: "WaitForStandbyConfirmation"}
	worked := outbox.LSN(1000)
	through := store.Walsender{Visible: true, Sent: &worked}
	for _, of := range []struct {
		name     string
		received outbox.LSN
		last     store.Walsender
		events   uint64 // since the look before
		takes    bool
		want     string // "": cannot be told
	}{
		{"it runs, and nothing comes", 100, runs, 0, true, SenderDecoding},
		{"it reads what it spilled", 100, reads, 0, true, SenderDecoding},
		{"it spills, and its session is hidden", 100, spills, 0, true, SenderDecoding},
		{"its session is hidden", 100, hidden, 0, true, ""},
		{"it waits for a standby", 100, waits, 0, true, ""},
		{"events come", 100, runs, 5, true, SenderSending},
		{"events come, and its session is hidden", 100, hidden, 5, false, SenderSending},
		{"the relay does not read", 100, runs, 0, false, SenderBlocked},
		{"the network does not take it", 100, client("WalSenderWriteData"), 0, true, SenderBlocked},
		{"all was received", 1000, runs, 0, true, SenderCaughtUp},
		{"all was received, and the relay does not read", 1000, runs, 0, false, SenderCaughtUp},
		{"it has worked through what was there", 100, through, 0, true, SenderCaughtUp},
		{"it waits for WAL", 100, client("WalSenderWaitForWal"), 0, true, SenderCaughtUp},
	} {
		synctest.Test(t, func(t *testing.T) {
			m, p, h := fresh()
			h.Enter(health.Active)
			p.session = &Session{Received: of.received}
			look := func(end outbox.LSN, at store.Walsender, events uint64) *Walsender {
				time.Sleep(time.Second)
				m.Database.LookedAtSender(SenderLook{Walsender: at, At: time.Now(), End: end, Events: events,
					Takes: of.takes, PID: 7})
				time.Sleep(time.Second)
				return m.Walsender()
			}
			if w := m.Walsender(); w != nil {
				t.Errorf("%s: before the first look: got %+v, want nothing", of.name, w)
			}
			if w := look(1000, store.Walsender{Visible: of.last.Visible}, 40); w == nil || w.State != nil {
				t.Errorf("%s: after one look: got %+v, want no state yet", of.name, w)
			}
			w := look(3000, of.last, 40+of.events)
			got := ""
			if w.State != nil {
				got = *w.State
			}
			at := of.received
			if of.last.Sent != nil {
				at = worked
			}
			if got != of.want || *w.BehindBytes != int64(3000-at) || w.WaitEvent != of.last.WaitsFor {
				t.Errorf("%s: got %q, %d bytes behind, wait %q; want %q", of.name, got, *w.BehindBytes, w.WaitEvent, of.want)
			}
			if since := map[outbox.LSN]float64{100: 3, 1000: 1}[at]; *w.BehindSeconds != since {
				t.Errorf("%s: behind for %v s, want %v", of.name, *w.BehindSeconds, since)
			}
			time.Sleep(slotFresh)
			if w := m.Walsender(); w != nil {
				t.Errorf("%s: an old look is still told: %+v", of.name, w)
			}
		})
	}
}

// Break it catches: the first look at a new session compared with the last one of the session before it, whose server
// process was another. Seen to fail with the process not compared.
func TestLooksOfTwoSessionsAreNotCompared(t *testing.T) {
	m, p, h := fresh()
	h.Enter(health.Active)
	p.session = &Session{Received: 1}
	for _, pid := range []int64{7, 7, 8} {
		m.Database.LookedAtSender(SenderLook{Walsender: store.Walsender{Visible: true}, At: time.Now(), End: 1000,
			Takes: true, PID: pid})
	}
	if w := m.Walsender(); w == nil || w.State != nil {
		t.Errorf("got %+v, want no state", w)
	}
}
