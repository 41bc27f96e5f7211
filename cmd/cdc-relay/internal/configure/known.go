package configure

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/doctor/install"
)

// known is the outbox table of a library. What its columns hold cannot be seen in the catalog, such as what a number in
// status means, but it is the same wherever the library is used.
type known struct {
	library string
	columns []string // the plain names that tell the table from any other
	keys    []assignment
	before  string // what has to be done before the first start
}

// assignment is a key with its value. A column stands in braces, in its plain name.
type assignment struct{ key, value string }

// libraries are those whose tables are recognised, whatever the tables' names.
var libraries = []known{
	{
		library: "MassTransit",
		columns: strings.Fields("sequencenumber messageid messagetype contenttype body outboxid inboxmessageid"),
		keys: []assignment{
			{"outbox.after_publish", "delete"}, {"outbox.order_by", "{sequencenumber}"},
		},
		before: "MassTransit delivers from this table itself. Turn off its delivery service (DisableDeliveryService) and " +
			"the outbox of its consumers (UseEntityFrameworkOutbox) before the first start, or each message is sent twice. " +
			"The value is MassTransit's envelope, and rows of its OutboxState stay",
	},
	{
		library: "sbmt-outbox",
		columns: strings.Fields("uuid eventkey bucket status errorscount processedat"),
		keys: []assignment{ // 2 is delivered, 3 discarded; failed attempts set processed_at, too
			{"outbox.published_when", "{status} IN (2, 3)"}, {"outbox.mark_set", "{status} = 2, {processedat} = now()"},
			{"outbox.dead_set", "{status} = 1, {errorscount} = {attempts}"},
			{"outbox.retry_set", "{status} = 0, {errorscount} = {attempts}"},
		},
		before: "stop the outbox daemon of sbmt-outbox before the first start, or each message is sent twice",
	},
	{
		library: "django-outbox-pattern",
		columns: strings.Fields("destination body expiresat retry status headers"),
		keys: []assignment{
			{"outbox.published_when", "{status} = 2"}, {"outbox.mark_set", "{status} = 2"},
			{"outbox.dead_set", "{status} = -1, {retry} = {attempts}"},
			{"outbox.retry_set", "{status} = 1, {retry} = {attempts}"},
		},
		before: "stop the publish command of django-outbox-pattern before the first start, or each message is sent twice",
	},
}

// libraryOf is the library that a table belongs to, if it is a known one.
func libraryOf(t table) (known, bool) {
	for _, l := range libraries {
		if !slices.ContainsFunc(l.columns, func(name string) bool { return t.column(name) == "" }) {
			return l, true
		}
	}
	return known{}, false
}

// stateNames are names of a column with the state of an event.
var stateNames = strings.Fields("status state processingstatus publishstatus")

// states asks for the states of an event, where the catalog does not have them and nothing that is set or proposed uses
// the column.
func (w *writer) states(proposed []install.Line) {
	o := w.cfg.Outbox
	for _, c := range w.recognised.columns {
		if !slices.Contains(stateNames, plain(c.name)) || c.name == o.Columns.EventType ||
			o.AfterPublish != config.AfterPublishMark ||
			strings.Contains(o.PublishedWhen+o.MarkSet, c.name) || slices.ContainsFunc(proposed, func(l install.Line) bool {
			return l.Key == "outbox.mark_set" && strings.Contains(l.Value, c.name)
		}) {
			continue
		}
		w.page.remember("say in outbox.published_when and outbox.mark_set what %s of %s is once an event is published, such "+
			"as %s = 'published': the catalog does not have its values", c.name, w.recognised, inSQL(c.name))
	}
}

// column is the name of the column with a plain name; empty: none.
func (t table) column(name string) string {
	at := slices.IndexFunc(t.columns, func(c column) bool { return plain(c.name) == name })
	if at < 0 {
		return ""
	}
	return t.columns[at].name
}

// in gives a value with the table's own names for the columns, as SQL has them.
func (a assignment) in(t table) string {
	text := a.value
	for _, c := range t.columns {
		text = strings.ReplaceAll(text, "{"+plain(c.name)+"}", inSQL(c.name))
	}
	return text
}

var simpleName = regexp.MustCompile(`^[a-z_][a-z0-9_]*$`)

// inSQL is a name as SQL must have it.
func inSQL(name string) string {
	if simpleName.MatchString(name) {
		return name
	}
	return `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
}

// library writes what is known of the table beyond its columns.
func (w *writer) library(t table) {
	l, is := libraryOf(t)
	if !is {
		return
	}
	for _, a := range l.keys {
		if w.isSet(a.key) {
			continue
		}
		value := a.in(t)
		w.page.set(a.key, quote(value), fmt.Sprintf("As %s has it.", l.library))
		switch a.key {
		case "outbox.after_publish":
			w.cfg.Outbox.AfterPublish = value
		case "outbox.order_by":
			w.cfg.Outbox.OrderBy = value
		case "outbox.published_when":
			w.cfg.Outbox.PublishedWhen = value
		case "outbox.mark_set":
			w.cfg.Outbox.MarkSet = value
		case "outbox.dead_set":
			w.cfg.Outbox.DeadSet = value
		case "outbox.retry_set":
			w.cfg.Outbox.RetrySet = value
		}
	}
	w.page.remember("%s", l.before)
}
