package relay

import (
	"github.com/cdc-relay/cdc-relay/internal/run/halt"
	"github.com/cdc-relay/cdc-relay/internal/watch/health"
)

// This file has the names under which others know what rooms of the relay define.

// Role is the role of the process.
type Role = health.Role

// The roles.
const (
	RoleStarting = health.Starting
	RoleStandby  = health.Standby // another relay holds the slot
	RoleCatchUp  = health.CatchUp
	RoleActive   = health.Active
	RoleHalted   = health.Halted
	RoleStopping = health.Stopping
)

// Note is an entry of the relay's recent history, such as a change of role. Names in JSON are stable.
type Note = health.Note

// Halt is the state in which continuing could lose or reorder events: the relay stops confirming and reports the
// reason, the risk and the remedy. It checks again by itself, so most halts end when the cause is fixed.
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
