package rabbitmq

import (
	"context"
	"fmt"
)

// Examine connects. The text says what answered. What queues there are behind an exchange cannot be asked by AMQP.
func (d *Driver) Examine(ctx context.Context) (text string, err error) {
	c, _, err := d.connect(ctx)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%v %v at %s; each exchange needs a durable queue bound for every routing key, or its events wait",
		c.Properties["product"], c.Properties["version"], c.RemoteAddr()), nil
}
