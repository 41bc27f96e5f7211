package settle

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// Breaks it catches: a gate that lets who waits pass while a lane pauses it, or keeps them when the last lane has
// resumed, when the pause has run out, or when the wait was given up; a lane that pauses it again and again, so that it
// is hardly ever open. Seen to fail with each line of Resume left out, and with no rest after a pause.
func TestGateKeepsWhoWaitsUntilItIsResumedOrItsPauseIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := new(gate)
		waited := func(ctx context.Context) time.Duration {
			began := time.Now()
			g.wait(ctx)
			return time.Since(began)
		}
		want := func(what string, got, want time.Duration) {
			t.Helper()
			if got != want {
				t.Errorf("%s: got a wait of %v, want %v", what, got, want)
			}
		}
		want("open", waited(t.Context()), 0)
		g.pause(laneName{topic: "a"})
		g.pause(laneName{topic: "b"})
		time.AfterFunc(100*time.Millisecond, func() { g.resume(laneName{topic: "a"}) })
		time.AfterFunc(200*time.Millisecond, func() { g.resume(laneName{topic: "b"}) })
		want("two lanes", waited(t.Context()), 200*time.Millisecond)
		time.Sleep(10 * time.Second)
		g.pause(laneName{topic: "a"})
		want("a lane that never resumes", waited(t.Context()), handOver)
		time.Sleep(2 * time.Second)
		g.pause(laneName{topic: "a"})
		want("the same again, soon", waited(t.Context()), 0)
		time.Sleep(5 * time.Second)
		g.pause(laneName{topic: "a"})
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		want("given up", waited(ctx), time.Millisecond)
	})
}
