package desk

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/store/internal/db"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/record"
)

// conditions collects SQL conditions and their parameters.
type conditions struct {
	text strings.Builder
	args []any
}

// add appends " AND <text>", in which ? is the argument's parameter.
func (c *conditions) add(text string, arg any) {
	c.args = append(c.args, arg)
	c.text.WriteString(" AND " + strings.ReplaceAll(text, "?", "$"+strconv.Itoa(len(c.args))))
}

// place names where the columns of a filter are in a table.
type place struct {
	alias, id, at string
}

var (
	deadPlace   = place{"d", "original_id", "dead_at"}
	parkedPlace = place{"p", "event_id", "parked_at"}
)

// matching appends the filter's conditions on a table; base is the SQL of the time that ages count from.
func (c *conditions) matching(f record.Filter, p place, o *db.Table, base string) error {
	if err := f.CheckClass(); err != nil {
		return err
	}
	if err := f.CheckTexts(); err != nil {
		return err
	}
	if len(f.IDs) > 0 {
		if err := db.CheckIDs(o, f.IDs); err != nil {
			return err
		}
		c.add(p.alias+"."+p.id+" = ANY (?::text[]::"+o.IDType+"[])", f.IDs)
	}
	if f.Key != nil {
		c.add(p.alias+".key = "+db.ToBytes("?::text"), *f.Key)
	}
	for _, column := range []struct{ name, want string }{{"event_type", f.Type}, {"error_class", f.Class},
		{"topic", f.Topic}} {
		if column.want != "" {
			c.add(p.alias+"."+column.name+" = ?::text", column.want)
		}
	}
	switch {
	case f.Code == "":
	case p != deadPlace:
		return fmt.Errorf("%w: code: only dead letters have one", record.ErrFilter)
	default:
		c.add(p.alias+".error_code = ?::text", f.Code)
	}
	if err := c.placed(f, p); err != nil {
		return err
	}
	if f.OlderThan > 0 {
		c.add(p.alias+"."+p.at+" <= "+base+" - ?::bigint * interval '1 microsecond'",
			time.Duration(f.OlderThan).Microseconds())
	}
	if f.NewerThan > 0 {
		c.add(p.alias+"."+p.at+" >= "+base+" - ?::bigint * interval '1 microsecond'",
			time.Duration(f.NewerThan).Microseconds())
	}
	return nil
}

// placed appends those on the aggregate and the position.
func (c *conditions) placed(f record.Filter, p place) error {
	if f.Aggregate != "" {
		kind, id, err := f.OfAggregate()
		if err != nil {
			return err
		}
		c.add("coalesce("+p.alias+".aggregate_type, '') = ?::text", kind)
		c.add(p.alias+".aggregate_id = ?::text", id)
	}
	if f.Position == "" {
		return nil
	}
	at, err := record.ParsePlace(f.Position)
	if err != nil {
		return err
	}
	c.add(p.alias+".from_stream = ?::boolean", !at.Table)
	c.add(p.alias+".position_order = ?::bigint", int64(at.Order))
	if at.Table {
		c.add(p.alias+".epoch = ?::bigint", at.Epoch)
	}
	if !at.Whole {
		c.add(p.alias+".position_index = ?::bigint", int64(at.Index))
	}
	return nil
}

// checkIDs reports whether the filter's ids are of the type that the outbox's are.
func (s *Desk) checkIDs(f record.Filter) error {
	o := s.db.TableSeen()
	if o == nil {
		return nil // the executor will say so
	}
	return db.CheckIDs(o, f.IDs)
}
