package inbox

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/inbox/internal/lanes"
)

// Limit bounds how many workers of this process handle events of a type at the same time, so that slow handlers leave
// workers to other types. Events of a limited type have transactions of their own. Call it before Run.
func (c *Consumer) Limit(eventType string, n int) {
	switch {
	case c.ran.Load():
		c.config.Log.Error("inbox: a limit is set after Run, and has no effect: set it before",
			"consumer", c.config.Name, "type", eventType)
		return
	case eventType == "":
		c.problems = append(c.problems, errors.New("inbox: a limit for an empty type: name the events' type"))
	case n <= 0:
		c.problems = append(c.problems, fmt.Errorf("inbox: the limit for type %q is %d, want at least 1", eventType, n))
	case c.limits[eventType] != 0:
		c.problems = append(c.problems, fmt.Errorf("inbox: two limits for type %q", eventType))
	}
	c.limits[eventType] = n
}

// checkLimits notes limits for types without a handler: a name with a typing error would bound nothing.
func (c *Consumer) checkLimits() {
	for _, eventType := range slices.Sorted(maps.Keys(c.limits)) {
		if c.handlers[eventType] == nil {
			c.problems = append(c.problems, fmt.Errorf("inbox: limit for type %q without a handler", eventType))
		}
	}
}

func (c *Consumer) laneLimits() lanes.Limits {
	if len(c.limits) == 0 {
		return lanes.Limits{}
	}
	classes := map[string]int{}
	var most []int
	for _, eventType := range slices.Sorted(maps.Keys(c.limits)) {
		most = append(most, c.limits[eventType])
		classes[eventType] = len(most)
	}
	return lanes.Limits{Most: most, Of: func(r *kgo.Record) int { return classes[c.config.typeOf(r)] }}
}

// typeOf is the type of a record's event, "" if it cannot be read. The record is read again when its turn comes, where
// a Parse that panics costs that event only.
func (c *Config) typeOf(r *kgo.Record) (eventType string) {
	defer func() {
		if recover() != nil {
			eventType = ""
		}
	}()
	if c.Parse == nil {
		for _, h := range r.Headers {
			if isType(h.Key) {
				eventType = string(h.Value)
			}
		}
		if eventType != "" {
			return eventType
		}
	}
	m, _ := c.read(r, "")
	return m.Type
}
