//go:build linux

package replication

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// lateContext is a context whose end is visible at once to those who look; AfterFunc callbacks run only
// when it is let: as when their goroutine gets its turn late.
type lateContext struct {
	context.Context
	done chan struct{}
	tell []func()
}

func (c *lateContext) Done() <-chan struct{} { return c.done }

func (c *lateContext) Err() error {
	select {
	case <-c.done:
		return context.Canceled
	default:
		return nil
	}
}

// AfterFunc is the method that package context uses of a context that is not its own.
func (c *lateContext) AfterFunc(f func()) (stop func() bool) {
	c.tell = append(c.tell, f)
	return func() bool { return true }
}

// The watcher of the context ends a blocked read, and must not end the wait for the server's agreement when it comes to
// it late. Break it catches: a Run that returns while the server, which is frozen here, has not read the last status.
// Seen to fail with the watcher left on while the session takes leave.
func TestLateWatcherDoesNotEndTheLeave(t *testing.T) {
	f := newFixture(t)
	s, err := Open(t.Context(), f.c)
	if err != nil {
		t.Fatal(err)
	}
	ctx := &lateContext{Context: context.Background(), done: make(chan struct{})}
	leaving, end := make(chan struct{}), make(chan error, 1)
	asked := 0
	go func() {
		end <- s.Run(ctx, func() outbox.LSN {
			switch asked++; asked {
			case 1: // between two reads
				if err := server.Freeze(); err != nil {
					t.Error(err)
				}
				close(ctx.done)
			case 2: // the deadline of the leave is set
				for _, tell := range ctx.tell {
					tell()
				}
				close(leaving)
			}
			return s.Confirmed
		})
	}()
	select {
	case <-leaving:
	case err = <-end:
		t.Errorf("Run returned %v without a last look at what is confirmed", err)
		end <- err
	case <-time.After(30 * time.Second):
		t.Error("Run has not taken its leave after 30 s")
	}
	select {
	case err = <-end:
		t.Errorf("Run returned %v before the server agreed", err)
		end <- err
	case <-time.After(closeTimeout / 4): // the point of the test: the server takes its time
	}
	if err := server.Thaw(); err != nil {
		t.Fatal(err)
	}
	if err := <-end; !errors.Is(err, context.Canceled) {
		t.Errorf("Run: got %v, want the context's error", err)
	}
}
