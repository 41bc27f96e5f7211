package reconcile

import (
	"context"
	"time"
)

// several is implemented by Tables of several outboxes: a round is of one of them.
type several interface {
	// NextTable has the rounds that follow be of the next one; so many calls as there are tables come to each.
	NextTable()
	// Tables is how many there are.
	Tables() int
	// Arrived has them be of one that was never looked through, if there is one that it has not named before.
	Arrived() bool
}

// pause is between two rounds: of several outboxes, each has one in reconcile.interval, as far as a round each
// reconcilerRest comes to that.
func (c *Reconciler) pause() time.Duration {
	if tables, are := c.tables.(several); are {
		return min(c.interval, max(c.interval/time.Duration(max(tables.Tables(), 1)), reconcilerRest))
	}
	return c.interval
}

// arrived reports whether a table has come that is to be looked through now.
func (c *Reconciler) arrived(tables several) bool {
	c.more = tables.Arrived()
	return c.more
}

// turn goes on to the next of several outboxes, if there are several, when one is done with. A look at all of them goes
// on by itself.
func (c *Reconciler) turn(ctx context.Context) error {
	tables, are := c.tables.(several)
	if !are || c.sweep != nil || c.order != nil {
		return nil
	}
	tables.NextTable()
	return c.read(ctx)
}

// read reads how far the table of the next rounds was looked through.
func (c *Reconciler) read(ctx context.Context) error {
	state, err := c.tables.AuditState(ctx)
	if err == nil {
		c.state, c.horizon = state, horizon{}
	}
	return err
}
