package relay

import "github.com/cdc-relay/cdc-relay/relay/internal/halt"

// Halt is a state in which going on could lose or reorder events: the relay stops confirming and says why, what is at
// risk and what to do. It probes again by itself: most halts end when the cause is repaired.
type Halt = halt.Error

// The codes of halts; docs/runbooks has a page for each.
const (
	HaltSlotMissing     = halt.SlotMissing
	HaltSlotLost        = halt.SlotLost
	HaltSlotMoved       = halt.SlotMoved
	HaltReadOnly        = halt.ReadOnly
	HaltTwoServers      = halt.TwoServers
	HaltSlotMismatch    = halt.SlotMismatch
	HaltSecondSlot      = halt.SecondSlot
	HaltOtherServer     = halt.OtherServer
	HaltOtherTable      = halt.OtherTable
	HaltBaseline        = halt.Baseline
	HaltCatchUpTooLarge = halt.CatchUpTooLarge
	HaltNotInitialised  = halt.NotInitialised
	HaltPublication     = halt.Publication
	HaltColumn          = halt.Column
	HaltMalformedWAL    = halt.MalformedWAL
	HaltUnreadable      = halt.Unreadable
	HaltSetup           = halt.Setup
	HaltFlood           = halt.Flood
)
