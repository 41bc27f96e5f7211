package main

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/internal/watch/logqueue"
)

// readerGrace bounds how long a stop for want of a reader may take.
const readerGrace = 2 * time.Second

// reader is standard output for the messages of sink stdout. It notices that their reader has gone away.
type reader struct {
	io.Writer
	leave func() // closes gone
	gone  chan struct{}
}

func newReader(w io.Writer) *reader {
	gone := make(chan struct{})
	return &reader{w, sync.OnceFunc(func() { close(gone) }), gone}
}

// Write implements io.Writer.
func (r *reader) Write(p []byte) (int, error) {
	n, err := r.Writer.Write(p)
	if errors.Is(err, syscall.EPIPE) {
		r.leave()
	}
	return n, err
}

func (r *reader) isGone() bool {
	select {
	case <-r.gone:
		return true
	default:
		return false
	}
}

// until gives a context that ends when the reader is gone. What is in flight can go nowhere then, so the process exits
// after the grace.
func (r *reader) until(ctx context.Context, log zerolog.Logger, lines *logqueue.Writer) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-ctx.Done():
			return
		case <-r.gone:
		}
		log.Error().Msg("standard output was closed; stopping. Unwritten messages are printed after the next start")
		time.AfterFunc(readerGrace, func() {
			lines.Flush(readerGrace)
			os.Exit(cli.ExitFailed)
		})
		cancel()
	}()
	return ctx, cancel
}
