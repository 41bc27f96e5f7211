package sql

import (
	"fmt"
	"maps"
	"strings"
)

// idIndexes bound the ids of parked events and dead letters. Text can be too long for a btree's entry; a hash
// index takes it.
func (n Names) idIndexes() map[string]string {
	if n.IDType != "text" {
		return map[string]string{".ParkedNumber": "", ".ParkedUnique": "PRIMARY KEY (source, event_id)", ".ParkedIndex": "",
			".DLQUnique": "UNIQUE (source, original_id)", ".DLQIndex": ""}
	}
	return map[string]string{
		".ParkedNumber": "\n    number         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,",
		".ParkedUnique": "EXCLUDE USING hash ((source::text || '/' || event_id) WITH =)",
		".ParkedIndex":  "\nCREATE INDEX ON " + n.Schema + ".cdc_relay_parked USING hash (event_id);",
		".DLQUnique":    "EXCLUDE USING hash ((source::text || '/' || original_id) WITH =)",
		".DLQIndex":     "\nCREATE INDEX ON " + n.DLQ + " USING hash (original_id);",
	}
}

// fill puts a value in the place of each {{.Name}}, and another file in the place of each {{name.sql}}. What a value
// has in it stays as it is. text/template is not used: it calls methods by their names, so with it the linker keeps
// every method of every type in the program.
func (n Names) fill(text, file string) (string, error) {
	values := n.values()
	maps.Copy(values, n.idIndexes())
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(text, "{{")
		b.WriteString(before)
		if !found {
			return b.String(), nil
		}
		name, after, _ := strings.Cut(rest, "}}")
		value, known := values[name]
		var err error
		switch {
		case known:
		case name == ".ViewMark":
			value, err = n.ViewMark()
		case name == "view.sql" && n.View == "":
		case strings.HasSuffix(name, ".sql"):
			value, err = render(name, n)
		default:
			err = fmt.Errorf("migration %s: there is nothing to fill in for {{%s}}", file, name)
		}
		if err != nil {
			return "", err
		}
		b.WriteString(value)
		text = after
	}
}

// values are the values of the placeholders in the files.
func (n Names) values() map[string]string {
	return map[string]string{
		".Schema": n.Schema, ".Outbox": n.Outbox, ".OutboxLiteral": n.OutboxLiteral, ".DLQ": n.DLQ, ".View": n.View,
		".DLQLiteral": n.DLQLiteral,

		".ID": n.ID, ".EventType": n.EventType, ".Payload": n.Payload, ".Headers": n.Headers, ".CreatedAt": n.CreatedAt,
		".AggregateColumns": n.aggregateColumns(), ".ExtraColumns": n.extraColumns(),

		".IDType": n.IDType, ".CollateC": n.CollateC(), ".PayloadType": n.PayloadType, ".HeadersType": n.HeadersType,
		".PublishedWhen": n.PublishedWhen, ".OwnPublishedAt": n.OwnPublishedAt,

		".Fields": n.Fields(), ".EventColumns": n.eventColumns(), ".Created": n.Created,
	}
}

// aggregateColumns define those of the two that the outbox is to have.
func (n Names) aggregateColumns() (columns string) {
	if n.AggregateType != "" {
		columns += "\n    " + n.AggregateType + " text NOT NULL,"
	}
	if n.AggregateID != "" {
		columns += "\n    " + n.AggregateID + " text,"
	}
	return columns
}

// extraColumns define the others.
func (n Names) extraColumns() (columns string) {
	for _, name := range n.Extra {
		columns += "\n    " + name + " text,"
	}
	return columns
}

// eventColumns are the view's of the event.
func (n Names) eventColumns() (columns string) {
	for _, f := range n.Event {
		columns += ",\n       " + f.Expression + " AS " + f.Name
	}
	return columns
}
