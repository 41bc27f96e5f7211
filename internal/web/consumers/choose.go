package consumers

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/store"
)

// Filter chooses events of a consumer; all that is given must hold.
type Filter struct {
	IDs   []string `json:"ids,omitempty"`
	Key   *string  `json:"key,omitempty"` // the message key, as UTF-8
	Type  string   `json:"type,omitempty"`
	Class string   `json:"class,omitempty"`
	Topic string   `json:"topic,omitempty"`
	// Age of the death or of the parking, at the time of asking.
	OlderThan store.Age `json:"older_than,omitempty"`
	NewerThan store.Age `json:"newer_than,omitempty"`
	All       bool      `json:"all,omitempty"`
	// Until bounds a change to what was there when it was counted, and lets ages count from then.
	Until *time.Time `json:"until,omitempty"`
}

// Criteria names what the filter asks for, without the values, which may be data of events: "ids, topic".
func (f Filter) Criteria() string {
	var names []string
	for _, c := range []struct {
		name  string
		given bool
	}{
		{"ids", len(f.IDs) > 0}, {"key", f.Key != nil}, {"type", f.Type != ""}, {"class", f.Class != ""},
		{"topic", f.Topic != ""}, {"older_than", f.OlderThan > 0}, {"newer_than", f.NewerThan > 0}, {"all", f.All},
	} {
		if c.given {
			names = append(names, c.name)
		}
	}
	return strings.Join(names, ", ")
}

// Check refuses a filter of a change that chooses nothing.
func (f Filter) Check() error {
	if f.Criteria() == "" {
		return fmt.Errorf("%w: nothing is chosen: give ids, a filter, or all", store.ErrFilter)
	}
	return nil
}

// conditions are those of one query, with their arguments. The first is the consumer's number.
type conditions struct {
	state string
	text  strings.Builder
	args  []any
}

// add puts the arguments in the places of the question marks.
func (c *conditions) add(text string, args ...any) {
	for _, arg := range args {
		c.args = append(c.args, arg)
		text = strings.Replace(text, "?", "$"+strconv.Itoa(len(c.args)), 1)
	}
	if c.text.Len() > 0 {
		c.text.WriteString(" AND ")
	}
	c.text.WriteString(text)
}

// query is one of events, with more columns.
func (c *conditions) query(columns string) string {
	whole := deadSQL
	if c.state == Parked {
		whole = parkedSQL
	}
	return fmt.Sprintf(whole, c.state, columns, c.text.String())
}

func conditionsOf(consumer int16, state string, f Filter) (*conditions, error) {
	if !slices.Contains(States, state) {
		return nil, fmt.Errorf("%w: state: found %.20q; allowed: %s", store.ErrFilter, state, strings.Join(States, ", "))
	}
	c := &conditions{state: state, args: []any{consumer}}
	at := "l.dead_at"
	switch {
	case state != Parked:
		c.add(deadStates[state])
	case len(f.IDs) > 0:
		c.add("true")
		at = "l.parked_at"
	default:
		c.add(first)
		at = "l.parked_at"
	}
	texts := slices.Concat(f.IDs, []string{f.Type, f.Class, f.Topic})
	if f.Key != nil {
		texts = append(texts, *f.Key)
	}
	for _, text := range texts {
		if strings.ContainsRune(text, 0) || !utf8.ValidString(text) {
			return nil, fmt.Errorf("%w: found %.100q; allowed: UTF-8 text without a zero byte", store.ErrFilter, text)
		}
	}
	if len(f.IDs) > 0 { // uuids are kept in small letters, with the source 0
		lower := make([]string, 0, len(f.IDs))
		for _, id := range f.IDs {
			lower = append(lower, strings.ToLower(id))
		}
		c.add("(l.event_id = ANY (?::text[]) OR l.source = 0 AND l.event_id = ANY (?::text[]))", f.IDs, lower)
	}
	if f.Key != nil {
		c.add("l.key = ?::bytea", []byte(*f.Key))
	}
	for column, value := range map[string]string{"l.type": f.Type, "l.class": f.Class, "l.topic": f.Topic} {
		if value != "" {
			c.add(column+" = ?::text", value)
		}
	}
	now := time.Time{}
	if f.Until != nil {
		now = *f.Until
		c.add(at+" <= ?::timestamptz", now)
	}
	c.age(at+" < %s - make_interval(secs => ?)", f.OlderThan, now)
	c.age(at+" >= %s - make_interval(secs => ?)", f.NewerThan, now)
	return c, nil
}

// age compares with the time of the count, or with the server's.
func (c *conditions) age(text string, age store.Age, now time.Time) {
	switch {
	case age == 0:
	case now.IsZero():
		c.add(fmt.Sprintf(text, "now()"), time.Duration(age).Seconds())
	default:
		c.add(fmt.Sprintf(text, "?::timestamptz"), now, time.Duration(age).Seconds())
	}
}

// Count is how many events of the state the filter chooses, and when they were counted. A change whose filter has that
// time as its until concerns these.
func (d *Desk) Count(ctx context.Context, consumer, state string, f Filter) (n int64, at time.Time, err error) {
	number, err := d.number(ctx, consumer)
	if err != nil {
		return 0, at, err
	}
	c, err := conditionsOf(number, state, f)
	if err != nil {
		return 0, at, err
	}
	err = d.row(ctx, "SELECT count(*), now() FROM ("+c.query("")+") l", c.args, &n, &at)
	if err != nil {
		return 0, at, fmt.Errorf("count the events of %s: %w", consumer, d.explained(err))
	}
	return n, at.UTC(), nil
}

// chosen are the numbers of the rows that a change is about, in the order of their keys.
func (d *Desk) chosen(ctx context.Context, consumer, state string, f Filter) (list []int64, err error) {
	number, err := d.number(ctx, consumer)
	if err != nil {
		return nil, err
	}
	c, err := conditionsOf(number, state, f)
	if err != nil {
		return nil, err
	}
	text := d.sql(`SELECT l.` + numberOf[state] + ` FROM (` + c.query("") + `) l
		ORDER BY l.topic, l.partition, l."offset", 1`)
	err = store.ReadOnly(ctx, d.pool, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, text, c.args...)
		if err == nil {
			list, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		}
		return err
	})
	return list, err
}

// numberOf is the column that numbers the rows of what a change can be about.
var numberOf = map[string]string{Dead: "id", Parked: "seq"}
