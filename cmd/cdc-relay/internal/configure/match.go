package configure

import (
	"cmp"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/config"
)

// table is one of the database, as far as it takes to see whether it is an outbox.
type table struct {
	schema, name string
	columns      []column
}

// column is a table's, with its type as format_type names it.
type column struct{ name, kind string }

func (t table) String() string { return config.JoinTable(t.schema, t.name) }

// field is a field of an event, with the names that applications give its column: lower case, no underscores, the most
// telling first.
type field struct {
	key   string // below outbox.columns
	names []string
	fits  func(kind string) bool
}

var (
	words   = func(kind string) bool { return !isJSON(kind) && !isTime(kind) && kind != "boolean" && kind != "bytea" }
	isTime  = func(kind string) bool { return strings.HasPrefix(kind, "timestamp") || kind == "date" }
	isJSON  = func(kind string) bool { return kind == "json" || kind == "jsonb" }
	isBytes = func(kind string) bool { return isJSON(kind) || kind == "bytea" || isText(kind) }
)

func isText(kind string) bool { return kind == "text" || strings.HasPrefix(kind, "character") }

// fields have no name in common, so that a column is one field's only.
var fields = []field{
	{"id", strings.Fields("id eventid messageid outboxid identifier uuid"), words},
	{"event_type", strings.Fields("eventtype eventname messagetype type kind name event routingkey " + topicNames), words},
	{"payload", strings.Fields("payload eventpayload payloadjson protopayload data eventdata body content message value"),
		isBytes},
	{"aggregate_type", strings.Fields("aggregatetype aggregatename aggregate entitytype resourcetype streamtype " +
		"subjecttype"), words},
	{"aggregate_id", strings.Fields("aggregateid aggregateidentifier entityid resourceid streamid subjectid " +
		"partitionkey orderingkey messagekey eventkey key"), words},
	{"headers", strings.Fields("headers messageheaders eventheaders metadata meta"), isJSON},
	{"created_at", strings.Fields("createdat occurredat insertedat createdon created occurredon createdonutc " +
		"occurredonutc added senttime timestamp eventtime"), isTime},
}

// topicNames are names of a column with the topic; it stands for the type of an event, too, where no other does.
const topicNames = "topic topicname destination"

// candidate is a table that looks like an outbox.
type candidate struct {
	table
	of    map[string]string // the columns by the field's key; a field without one is not there
	score int
}

// recognise reports whether a table looks like an outbox: it has an id and a payload, and either a name that says so,
// or the columns of a known library, or a type and an aggregate.
func recognise(t table) (candidate, bool) {
	c := candidate{table: t, of: map[string]string{}}
	for _, f := range fields {
		for _, name := range f.names {
			at := slices.IndexFunc(t.columns, func(c column) bool {
				return plain(c.name) == name && f.fits(c.kind)
			})
			if at >= 0 {
				c.of[f.key] = t.columns[at].name
				c.score++
				break
			}
		}
	}
	named := strings.Contains(plain(t.name), "outbox")
	if named {
		c.score += 2 * len(fields) // more than any other table's columns are worth
	}
	_, is := libraryOf(t)
	if is {
		c.score += len(fields)
	}
	typed := c.of["event_type"] != "" && c.of["aggregate_id"] != ""
	return c, c.of["id"] != "" && c.of["payload"] != "" && (named || is || typed)
}

// recogniseAll are the tables that look like an outbox, the likeliest first.
func recogniseAll(tables []table) (found []candidate) {
	for _, t := range tables {
		if c, is := recognise(t); is {
			found = append(found, c)
		}
	}
	slices.SortStableFunc(found, func(a, b candidate) int { return cmp.Compare(b.score, a.score) })
	return found
}

func plain(name string) string { return strings.ReplaceAll(strings.ToLower(name), "_", "") }
