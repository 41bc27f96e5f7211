package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// sameSignal is how close to the first signal another one is taken for the same: timeout(1), and a shell's Ctrl-C with
// a wrapper that passes it on, send to the process and to its group.
const sameSignal = 100 * time.Millisecond

// UntilSignal gives a context that the first SIGTERM or SIGINT ends, after announcing it if announce is not nil; a
// second one exits the process at once. The function that it returns must be called at the end.
func UntilSignal(announce func()) (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	done := make(chan struct{})
	go func() {
		select {
		case <-signals:
			if announce != nil {
				announce()
			}
			cancel()
		case <-done:
			return
		}
		for first := time.Now(); ; {
			select {
			case <-signals:
				if time.Since(first) > sameSignal {
					fmt.Fprintln(os.Stderr, "a second signal: exiting at once")
					os.Exit(ExitFailed)
				}
			case <-done:
				return
			}
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		cancel()
	}
}
