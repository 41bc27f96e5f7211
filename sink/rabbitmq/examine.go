package rabbitmq

import (
	"context"
	"fmt"
)

// Examine connects. The text says what answered. Nothing that could be risky is asked for: what queues
// there are behind an exchange cannot be, by AMQP.
func (d *Driver) Examine(ctx context.Context) (text string, risky bool, err error) {
	c, _, err := d.connect(ctx)
	if err != nil {
		return "", false, err
	}
	return fmt.Sprintf("%v %v at %s; each exchange needs a durable queue bound for every routing key, or its events wait",
		c.Properties["product"], c.Properties["version"], c.RemoteAddr()), false, nil
}
