package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

const (
	// sameSignal is how close to the first signal another one is taken for the same: timeout(1), and a shell's Ctrl-C
	// with a wrapper that passes it on, send to the process and to its group.
	sameSignal = 100 * time.Millisecond
	// sayPatience is how long a signal waits for what is said about it to be read.
	sayPatience = 200 * time.Millisecond
)

// Endings are the signals that end a command in order. A SIGHUP that the process was started to ignore, as by nohup,
// is not among them.
func Endings() []os.Signal {
	endings := []os.Signal{syscall.SIGTERM, syscall.SIGINT}
	if !signal.Ignored(syscall.SIGHUP) {
		endings = append(endings, syscall.SIGHUP)
	}
	return endings
}

// UntilSignal gives a context that the first SIGTERM, SIGINT or SIGHUP ends, after announcing it if announce is not
// nil; a second one exits the process at once, unless it is a SIGHUP: a terminal that closes sends several. The
// function that it returns must be called at the end.
func UntilSignal(announce func()) (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, Endings()...)
	done := make(chan struct{})
	go func() {
		select {
		case <-signals:
			if announce != nil {
				within(sayPatience, announce)
			}
			cancel()
		case <-done:
			return
		}
		for first := time.Now(); ; {
			select {
			case s := <-signals:
				if s != syscall.SIGHUP && time.Since(first) > sameSignal {
					within(sayPatience, func() { fmt.Fprintln(os.Stderr, "a second signal: exiting at once") })
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

// OutliveReaders keeps the process alive when the reader of its output goes away: a write to standard output or error
// then returns EPIPE. By default such a write ends a Go program by SIGPIPE, which is right for commands in front of
// head. It leaves programs that this one starts their default, which ignoring the signal would not.
func OutliveReaders() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }
