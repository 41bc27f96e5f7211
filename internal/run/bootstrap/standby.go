package bootstrap

import (
	"context"
	"math/rand/v2"
	"time"
)

// AwaitFree waits until the slot seems to be free, or cannot be looked at, and at most for the pause. It asks each time
// the look has passed, up to a quarter more by chance; that is one question. What is the matter then, the next start
// says.
func (s Setup) AwaitFree(ctx context.Context, pause, look time.Duration) {
	until := time.Now().Add(pause)
	for left := pause; left > 0; left = time.Until(until) {
		select {
		case <-time.After(min(left, look+rand.N(look/4))):
		case <-ctx.Done():
			return
		}
		if slot, err := s.Store.Slot(ctx); err != nil || !slot.Active {
			return
		}
	}
}
