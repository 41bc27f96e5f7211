package outbox

// Event is one row inserted into the outbox table. The byte fields hold Postgres's text form of the column (a bytea is
// already decoded to its bytes); nil means SQL NULL, empty but not nil means the empty string.
//
// The bytes belong to the buffer in which the row arrived and are immutable from the moment the event is decoded until
// its outcome is settled; they are not copied on the way.
type Event struct {
	ID            []byte   // the row's unique id in its outbox, never nil
	AggregateType []byte   // usually chooses the topic; nil also when the table has none
	AggregateID   []byte   // usually the message key; nil also when the table has none
	EventType     []byte   //
	Payload       []byte   // nil = SQL NULL = tombstone; the JSON text null is a value
	Headers       []byte   // JSON object of strings, or nil
	CreatedAt     []byte   // timestamptz as Postgres prints it under DateStyle ISO, TimeZone UTC; see ParseTimestamp
	Extra         [][]byte // further columns that templates name, in the order in which the mapping lists them
	Seq           int64    // the number that the row drew at its insert; 0: the table has none, or it is not positive
	// Oversize is the size, in bytes, of a row whose large values were too large to read: those are nil.
	// 0: the row is whole.
	Oversize int64
	Position Position
	Source   int32 // which of several outboxes; 0: the only one
}

// EventTooLarge is the code of a dead letter that has no payload because its row was too large to be read: the payload
// is in the table.
const EventTooLarge = "EVENT_TOO_LARGE"

// TopicLimit is the code of a dead letter whose event chose a topic beyond limits.topics.
const TopicLimit = "TOPIC_LIMIT"

// InvalidCodes are the codes of dead letters whose rows could not be messages for what is in them: no broker has seen
// them.
var InvalidCodes = []string{"INVALID_PAYLOAD", "INVALID_ATTRIBUTE", "INVALID_HEADERS", "INVALID_HEADER",
	"INVALID_ENCODING", "INVALID_TOPIC", "INVALID_ROUTING_KEY", "INVALID_ID", "INVALID_CREATED_AT", EventTooLarge}

// MaxID bounds an event's id, in bytes: what an entry of the journal's key holds whatever the id is made of.
// A btree takes 2704 bytes (BTMaxItemSize in Postgres's nbtree.h) of 8 KiB pages: 8 of header, 4 of the source, 4 of
// length.
const MaxID = 2688

// Columns names the outbox table's columns that make up an [Event]. AggregateType, AggregateID, Headers and CreatedAt
// may be empty: no such column.
type Columns struct {
	ID, AggregateType, AggregateID, EventType, Payload, Headers, CreatedAt string
	Extra                                                                  []string // further columns that templates name

	// Seq is a whole number that grows with each insert. It may name a column that the table does not have: no number.
	Seq string

	// Constants holds the values of names that are not columns, see [Constants]; nil for the only outbox of a slot.
	Constants map[string]string

	// Of what the aggregate's type and id are composed where they have no column; none: they are NULL.
	TypeParts, IDParts []Part
}

// Constants returns what {schema} and {table} stand for in the templates of one of several outboxes.
func Constants(schema, table string) map[string]string {
	return map[string]string{"schema": schema, "table": table}
}

// Part is a piece of what is composed of a row: either literal text or a column of the table.
type Part struct{ Literal, Column string }
