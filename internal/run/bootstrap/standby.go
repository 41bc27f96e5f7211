package bootstrap

import (
	"context"
	"math/rand/v2"
	"time"
)

// freeLook is how often, up to a quarter more by chance, a standby asks whether the slot is free. It is one question.
const freeLook = 50 * time.Millisecond

// AwaitFree waits until the slot seems to be free, or cannot be looked at, and at most for the pause. What is the
// matter then, the next start says.
func (s Setup) AwaitFree(ctx context.Context, pause time.Duration) {
	until := time.Now().Add(pause)
	for left := pause; left > 0; left = time.Until(until) {
		select {
		case <-time.After(min(left, freeLook+rand.N(freeLook/4))):
		case <-ctx.Done():
			return
		}
		if slot, err := s.Store.Slot(ctx); err != nil || !slot.Active {
			return
		}
	}
}
