package record

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// Filter chooses dead letters or parked events; all that is given must hold. The zero Filter with All chooses every
// one, without All nothing may be changed by it: see [Filter.Check].
type Filter struct {
	IDs   []string `json:"ids,omitempty"` // of events
	Key   *string  `json:"key,omitempty"` // the message key, as UTF-8
	Type  string   `json:"type,omitempty"`
	Class string   `json:"class,omitempty"`
	Topic string   `json:"topic,omitempty"`
	Code  string   `json:"code,omitempty"` // of dead letters: why they died

	Aggregate string `json:"aggregate,omitempty"` // TYPE/ID
	Position  string `json:"position,omitempty"`  // as in x-outbox-position, or the commit LSN of a transaction
	// Age of the death or of the parking, at the time of asking.
	OlderThan Age  `json:"older_than,omitempty"`
	NewerThan Age  `json:"newer_than,omitempty"`
	All       bool `json:"all,omitempty"`

	// Source is the number of the outbox that a request is about, where a slot has several. 0: it has one.
	Source int32 `json:"source,omitempty"`

	// Until limits a request to events that were dead or parked by then, and ages count from then, so the request
	// covers the counted events. It chooses nothing by itself, and nothing in lists. Null: the time of asking, which is
	// the latest that it can be.
	Until *time.Time `json:"until,omitempty"`

	// UntilNow, of a resume, lets all events that were committed before it was asked for become dead letters. It chooses
	// nothing.
	UntilNow bool `json:"until_now,omitempty"`
}

// ErrFilter reports that a filter cannot choose anything as it is.
var ErrFilter = errors.New("no event can be chosen like this")

// Classes are the values of a filter's Class.
var Classes = []string{string(outbox.Transient), string(outbox.Permanent), string(outbox.Blocked)}

// Age is a duration that JSON shows as a text such as "24h0m0s".
type Age time.Duration

// MarshalText gives the form of [time.Duration.String].
func (a Age) MarshalText() ([]byte, error) { return []byte(time.Duration(a).String()), nil }

// UnmarshalText reads what [ParseAge] does.
func (a *Age) UnmarshalText(text []byte) (err error) {
	*a, err = ParseAge(string(text))
	return err
}

// ParseAge reads a duration such as 90s, 24h or 7d, above zero.
func ParseAge(text string) (Age, error) {
	const day = 24 * time.Hour
	d, err := time.ParseDuration(text)
	if days, found := strings.CutSuffix(text, "d"); found {
		var n int
		n, err = strconv.Atoi(days)
		d = time.Duration(n) * day
		if n < 0 || n > 10*365 { // more days than a duration holds would wrap around
			err = errors.New("too long")
		}
	}
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("%q is not an age: want a duration above zero such as 90s, 24h or 7d", text)
	}
	return Age(d), nil
}

// criteria names what the filter asks for, without the values: they may be data of events.
func (f Filter) criteria() (names []string) {
	for _, c := range []struct {
		name  string
		given bool
	}{
		{"ids", len(f.IDs) > 0}, {"key", f.Key != nil}, {"type", f.Type != ""}, {"class", f.Class != ""},
		{"topic", f.Topic != ""}, {"code", f.Code != ""}, {"aggregate", f.Aggregate != ""}, {"position", f.Position != ""},
		{"older_than", f.OlderThan > 0}, {"newer_than", f.NewerThan > 0}, {"all", f.All},
	} {
		if c.given {
			names = append(names, c.name)
		}
	}
	return names
}

// Criteria names what the filter asks for, without the values, which may be data of events: "ids, topic".
func (f Filter) Criteria() string { return strings.Join(f.criteria(), ", ") }

// Check says what is wrong with a filter that is to change something: it must be wanted that it chooses everything.
func (f Filter) Check() error {
	if len(f.criteria()) == 0 {
		return fmt.Errorf("%w: nothing is chosen: give ids, a filter, or all", ErrFilter)
	}
	return f.CheckClass()
}

// CheckTexts refuses texts that no value in Postgres can equal: they would choose nothing, and look like nothing to be
// done.
func (f Filter) CheckTexts() error {
	key := ""
	if f.Key != nil {
		key = *f.Key
	}
	for _, t := range []struct{ field, text string }{{"key", key}, {"type", f.Type}, {"topic", f.Topic}, {"code", f.Code},
		{"aggregate", f.Aggregate}} {
		if strings.ContainsRune(t.text, 0) || !utf8.ValidString(t.text) {
			return fmt.Errorf("%w: %s: found %.100q; allowed: UTF-8 text without a zero byte", ErrFilter, t.field, t.text)
		}
	}
	if f.Position != "" {
		if _, err := ParsePlace(f.Position); err != nil {
			return err
		}
	}
	if f.Aggregate != "" {
		if _, _, err := f.OfAggregate(); err != nil {
			return err
		}
	}
	return nil
}

// CheckClass refuses a class that there is not: it would choose nothing, and look like nothing to be done.
func (f Filter) CheckClass() error {
	if f.Class != "" && !slices.Contains(Classes, f.Class) {
		return fmt.Errorf("%w: class: found %q; allowed: %s", ErrFilter, f.Class, strings.Join(Classes, ", "))
	}
	return nil
}
