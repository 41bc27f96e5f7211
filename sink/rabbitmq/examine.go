package rabbitmq

import (
	"context"
	"fmt"
	"strings"
)

// Examine connects, and looks for the exchange, which is the only one that there is, or empty, and for what the
// consumers of [Config] need; what is not there is a *MissingError. The text says what answered. Risky is a queue that
// is to have a single active consumer and lacks it. AMQP has no question for the bindings of an exchange.
func (d *Driver) Examine(ctx context.Context, exchange string) (text string, risky bool, err error) {
	c, _, err := d.connect(ctx)
	if err != nil {
		return "", false, err
	}
	if err := d.missing(ctx, c, exchange); err != nil {
		return "", false, err
	}
	warnings, err := d.unordered(ctx, c)
	if err != nil {
		return "", false, err
	}
	text = fmt.Sprintf("%v %v at %s; ", c.Properties["product"], c.Properties["version"], c.RemoteAddr())
	if n := len(d.config.Consumers); n > 0 {
		text += fmt.Sprintf("the exchanges and queues of %d consumers exist; ", n)
	}
	text += "each exchange needs a durable queue bound for every routing key, or its events wait"
	return strings.Join(append([]string{text}, warnings...), "; "), len(warnings) > 0, nil
}
