package settle

import (
	"fmt"
	"sync/atomic"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/sink"
)

// mostRefused is how many rows a table may refuse one after another, each by itself, before that is taken for the
// table's trouble and not the rows': then everything waits until someone repairs it.
const mostRefused = 16

// refusals counts the rows that a table refuses. It narrows a refused write to these rows, as the sink does with a
// batch: one row must not keep the others, and what is confirmed, waiting forever. Any goroutine may use it.
type refusals struct{ inARow atomic.Int32 }

// narrow writes the rows from…to-1: all of them, or if what is in them is refused each half by itself, in order. A row
// that is refused alone is given up.
func (t *refusals) narrow(from, to int, write func(from, to int) error, giveUp func(i int, why error) error) error {
	err := write(from, to)
	switch {
	case err == nil:
		t.inARow.Store(0)
		return nil
	case !store.IsAboutRows(err):
		return err
	case to-from == 1:
		if t.inARow.Add(1) > mostRefused {
			return err
		}
		return giveUp(from, err)
	}
	middle := (from + to) / 2
	if err := t.narrow(from, middle, write, giveUp); err != nil {
		return err
	}
	return t.narrow(middle, to, write, giveUp)
}

// refusedReason is that of a dead letter whose row another table refuses.
func refusedReason(code, what string, why error) *sink.Reason {
	return &sink.Reason{Class: outbox.Permanent, Code: code, Text: fmt.Sprintf("%s: %v", what, why)}
}
