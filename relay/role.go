package relay

import "github.com/cdc-relay/cdc-relay/relay/internal/health"

// Role is what the process is doing, as a whole.
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

// Note is something that an operator may want to look back at. Names in JSON are stable.
type Note = health.Note
