package conditional

import (
	"context"
	"fmt"

	"github.com/cdc-relay/cdc-relay/sink"
)

// Keeper is a [Stream] that acknowledges what a failure of one server can still lose.
type Keeper interface {
	// Keeps reports whether Keep is wanted.
	Keeps() bool
	// Keep returns once enough servers have the log up to the end. An error says that they may not, or that the log ends
	// elsewhere by now.
	Keep(ctx context.Context, end int64) error
}

// keepSafe keeps what was appended or found since the last time. If it cannot be, or something may stand behind that,
// nothing behind safe counts as written any more: it may be gone with the server that had it, and is looked for again.
func (l *Log) keepSafe(ctx context.Context, s Stream, batches []*sink.Batch) (failure error) {
	k, can := s.(Keeper)
	if !can || !k.Keeps() || !l.known || l.end <= l.safe {
		return nil
	}
	if !l.doubt {
		err := k.Keep(ctx, l.end)
		if err == nil {
			l.safe = l.end
			return nil
		}
		defer func() { failure = fmt.Errorf("keep what was appended: %w", err) }()
	}
	for _, b := range batches {
		p := b.State.(*progress)
		for i, offset := range p.offsets {
			if offset > l.safe {
				p.offsets[i], p.sent = -1, l.accepted+1
			}
		}
	}
	l.cutStrays(l.safe)
	l.end, l.doubt = l.safe, true
	return nil
}
