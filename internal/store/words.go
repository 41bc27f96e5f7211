package store

import (
	"github.com/cdc-relay/cdc-relay/internal/store/internal/catalog"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/db"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/record"
)

// The types of the store; package record documents each.
type (
	AdoptError      = record.AdoptError
	Adoption        = record.Adoption
	Age             = record.Age
	Alarm           = record.Alarm
	Ask             = record.Ask
	Attempt         = record.Attempt
	AuditRange      = record.AuditRange
	AuditRow        = record.AuditRow
	AuditState      = record.AuditState
	Blocker         = record.Blocker
	BreakerState    = record.BreakerState
	CatchUpRow      = record.CatchUpRow
	Class           = record.Class
	Cleanable       = record.Cleanable
	Config          = record.Config
	Dead            = record.Dead
	DeadCursor      = record.DeadCursor
	DeadLetter      = record.DeadLetter
	DeadLetterWhole = record.DeadLetterWhole
	DeadReason      = record.DeadReason
	Edit            = record.Edit
	EditAll         = record.EditAll
	EditStep        = record.EditStep
	Edited          = record.Edited
	ExpressionError = record.ExpressionError
	HiddenError     = record.HiddenError
	Filter          = record.Filter
	Found           = record.Found
	FoundDeath      = record.FoundDeath
	FoundInTransit  = record.FoundInTransit
	FoundParking    = record.FoundParking
	FoundPlace      = record.FoundPlace
	FoundRow        = record.FoundRow
	Grant           = record.Grant
	Home            = record.Home
	Lane            = record.Lane
	Memory          = record.Memory
	Named           = record.Named
	NotPatched      = record.NotPatched
	ObstacleError   = record.ObstacleError
	Offset          = record.Offset
	Outbox          = record.Outbox
	Outcome         = record.Outcome
	Parked          = record.Parked
	ParkedKey       = record.ParkedKey
	ParkedRow       = record.ParkedRow
	ParkedSum       = record.ParkedSum
	Patch           = record.Patch
	Pause           = record.Pause
	Portion         = record.Portion
	Problem         = record.Problem
	Published       = record.Published
	Recognition     = record.Recognition
	Request         = record.Request
	Roles           = record.Roles
	Running         = record.Running
	Sighting        = record.Sighting
	Aside           = record.Aside
	SlotStatus      = record.SlotStatus
	Spooled         = record.Spooled
	SpoolState      = record.SpoolState
	State           = record.State
	Step            = record.Step
	TopicTail       = record.TopicTail
	Walsender       = record.Walsender
	WaitingTopic    = record.WaitingTopic

	// Page is a part of a list.
	Page[T any] = record.Page[T]
)

// What becomes of the outbox row after its event is journaled.
const (
	Mark   = record.Mark
	Keep   = record.Keep
	Delete = record.Delete
)

// OtherSlotName returns the remedy for a slot with a [SlotStatus.Mismatch].
const OtherSlotName = record.OtherSlotName

// TopicItself is the partition of an [Offset] that notes the cluster of a topic, TopicID that of one that notes its id.
const (
	TopicItself = record.TopicItself
	TopicID     = record.TopicID
)

// What the tables say of an event.
const (
	Unrecorded = record.Unrecorded
	Recorded   = record.Recorded
	Reused     = record.Reused
	Unsure     = record.Unsure
)

// The phases of a relay.
const (
	CatchUp = record.CatchUp
	Stream  = record.Stream
	AsSlot  = record.AsSlot
)

// When a parked event is due.
const (
	NotDue   = record.NotDue
	WhenWell = record.WhenWell
)

// What may have become of a dead letter.
const (
	DeadOpen      = record.DeadOpen
	DeadReplayed  = record.DeadReplayed
	DeadDiscarded = record.DeadDiscarded
	DeadAny       = record.DeadAny
)

// What became of an event that a replay concerned.
const (
	OutcomePublished = record.OutcomePublished
	OutcomeParked    = record.OutcomeParked
	OutcomeDied      = record.OutcomeDied
	OutcomeBehind    = record.OutcomeBehind
	OutcomeDiscarded = record.OutcomeDiscarded
)

// The kinds of requests.
const (
	RequestReplay    = record.RequestReplay
	RequestDiscard   = record.RequestDiscard
	RequestRetry     = record.RequestRetry
	RequestPause     = record.RequestPause
	RequestResume    = record.RequestResume
	RequestReconcile = record.RequestReconcile
	RequestRepublish = record.RequestRepublish
)

// TokenPrefix marks the relay's own logical messages in the WAL.
const TokenPrefix = record.TokenPrefix

// What an error of Postgres asks for.
const (
	Unclassified = record.Unclassified
	Reconnect    = record.Reconnect
	Standby      = record.Standby
	Secrets      = record.Secrets
	FindPrimary  = record.FindPrimary
	Setup        = record.Setup
	SlotGone     = record.SlotGone
	Retry        = record.Retry
	Corrupt      = record.Corrupt
	Stopped      = record.Stopped
)

// Lists of what a filter or a state can be.
var (
	Classes    = record.Classes
	DeadStates = record.DeadStates
)

// What is known of an event.
const (
	FoundPublished = record.FoundPublished
	FoundBaseline  = record.FoundBaseline
	FoundParked    = record.FoundParked
	FoundDiscarded = record.FoundDiscarded
	FoundDead      = record.FoundDead
	FoundInFlight  = record.FoundInFlight
	FoundMarked    = record.FoundMarked
	FoundWaiting   = record.FoundWaiting
	FoundNothing   = record.FoundNothing
)

// Errors that callers tell apart.
var (
	ErrFenced       = record.ErrFenced
	ErrIDTaken      = record.ErrIDTaken
	ErrInherited    = record.ErrInherited
	ErrLeaseLost    = record.ErrLeaseLost
	ErrNoOutbox     = record.ErrNoOutbox
	ErrOtherTable   = record.ErrOtherTable
	ErrCannot       = record.ErrCannot
	ErrEdit         = record.ErrEdit
	ErrFilter       = record.ErrFilter
	ErrCursor       = record.ErrCursor
	ErrNoAlarm      = record.ErrNoAlarm
	ErrNoDeadLetter = record.ErrNoDeadLetter
	ErrNoRequest    = record.ErrNoRequest
)

// AskedToken is the message that is committed with a request to the relay of the slot.
func AskedToken(slot string) string { return record.AskedToken(slot) }

// Classify is the one table that says what to do about an error.
func Classify(err error) Class { return record.Classify(err) }

// IsTransient reports whether the same call may succeed later without anybody changing the relay's set-up.
func IsTransient(err error) bool { return record.IsTransient(err) }

// IsOutOfTime reports whether the server ended a statement: in most cases one that took longer than it may.
func IsOutOfTime(err error) bool { return record.IsOutOfTime(err) }

// IsLock reports whether another session stood in the way, and will not forever.
func IsLock(err error) bool { return record.IsLock(err) }

// IsAboutRows reports whether Postgres refuses what is in a row, so that other rows of the same statement may be taken.
func IsAboutRows(err error) bool { return record.IsAboutRows(err) }

// IsShutdown reports whether the server ends this session or lets no one in, as it does when it shuts down.
func IsShutdown(err error) bool { return record.IsShutdown(err) }

// IsDenied reports whether Postgres refused something for want of a privilege.
func IsDenied(err error) bool { return record.IsDenied(err) }

// Said is Postgres's own text in an error, or the error's.
func Said(err error) string { return record.Said(err) }

// PublicationSQL creates the publication of the tables.
func PublicationSQL(name string, tables []Named) string {
	return catalog.PublicationOfSQL(name, tables)
}

// AddToPublication adds tables, given as SQL names them, to the publication.
func AddToPublication(name string, tables []string) string {
	return catalog.AddToPublication(name, tables)
}

// OutboxFlag names an outbox in a command that people paste; "" without a name.
func OutboxFlag(outbox string) string { return record.OutboxFlag(outbox) }

// GrantSQL is the statement that gives a role what it lacks.
func GrantSQL(g Grant, role string) string {
	return "GRANT " + g.String() + " TO " + db.Quote(role) + ";"
}

// ErrBarrier is a ready-made error for a barrier that was not passed.
func ErrBarrier(blockers []Blocker) error { return record.ErrBarrier(blockers) }

// ExpressionErrors are all that the error is made of.
func ExpressionErrors(err error) []*ExpressionError { return record.ExpressionErrors(err) }

// ShownPayload is a payload as the JSON that it is, or else as text or base64, and which of them.
func ShownPayload(payload []byte) (shown any, encoding string) { return record.ShownPayload(payload) }

// ParseAge reads a duration such as 90s, 24h or 7d, above zero.
func ParseAge(text string) (Age, error) { return record.ParseAge(text) }
