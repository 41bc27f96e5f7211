package simulator

import (
	"fmt"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store"
)

var spoolSteps = []stepOf{
	{"spool", true, 3, func(p *drill, c *caller, d *dice) (string, error) {
		n := int64(1 + d.below(4))
		return "", c.Spool(p.ctx, store.Spooled{Number: n, Era: int64(d.below(2)), Ends: outbox.LSN(int(n) * d.below(3)),
			Committed: clock(), Events: d.below(3), Data: emptySpooled})
	}},
	{"read the spool", false, 2, func(p *drill, c *caller, d *dice) (string, error) {
		_, err := c.Spooled(p.ctx)
		if err == nil {
			_, _, err = c.NextSpooled(p.ctx, int64(d.below(4)))
		}
		return "", err
	}},
	{"open the spool", true, 1, func(p *drill, c *caller, _ *dice) (string, error) {
		st, err := c.OpenSpool(p.ctx)
		return fmt.Sprint(st.Last), err
	}},
	{"delete spooled", true, 1, func(p *drill, c *caller, d *dice) (string, error) {
		return "", c.DeleteSpooled(p.ctx, int64(d.below(2)), int64(d.below(4)))
	}},
}

// emptySpooled is a row of the spool without messages: an empty frame of zstd.
var emptySpooled = []byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x58, 0x01, 0x00, 0x00}
