package message

import (
	"fmt"
	"runtime/debug"

	"github.com/cdc-relay/cdc-relay/internal/message/schemas"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/sink"
)

const (
	codePanic   = "ENCODER_PANIC"
	codeTimeout = "ENCODER_TIMEOUT"
)

// mostPanicText bounds what of a panic's value is in a reason, in bytes: it may quote the event.
const mostPanicText = 200

// oversize is the reason of an event whose row was too large to be read.
func (x *Encoder) oversize(e *outbox.Event) *sink.Reason {
	return permanent(outbox.EventTooLarge, fmt.Sprintf("the row has %d bytes, and limits.max_event_bytes is %d: payload "+
		"kept in the table, where a replay reads it once the limit allows", e.Oversize, x.maxBytes))
}

// recovered is the reason of an event that cannot be a message because the work on it panicked.
func (x *Encoder) recovered(id []byte, value any) *sink.Reason {
	if slow, is := value.(*schemas.TooLong); is {
		return permanent(codeTimeout, slow.Error()+"; its schema has branches that are tried again at each level: "+
			"give them a discriminator, or have the producer nest less")
	}
	if x.hooks.Panicked != nil {
		x.hooks.Panicked(id, value, debug.Stack())
	}
	return permanent(codePanic, fmt.Sprintf("making the event's message failed by a mistake in the program: %.*s; "+
		"the log has the stack: report it, and replay the event with a version that has the fix",
		mostPanicText, fmt.Sprint(value)))
}
