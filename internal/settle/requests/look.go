package requests

import (
	"context"

	"github.com/cdc-relay/cdc-relay/internal/store"
)

// look is a look at the whole table that someone asked for. It goes on beside other requests, because it takes as
// long as the table is large. One that its session does not live to see is begun again by the next.
type look struct {
	session Session
	request int64
	cancel  context.CancelFunc
	done    chan struct{} // closed at the end; then the rest is set
	err     error

	unrecorded, missed int
}

// end gives up a look, and returns when nothing of it runs; nil is none.
func (l *look) end() {
	if l != nil {
		l.cancel()
		<-l.done
	}
}

// reconcile begins the look that is asked for, or sees whether it is over.
func (e *Executor) reconcile(ctx context.Context, s Session, request *store.Request) (more bool, err error) {
	if l := e.looking; l == nil || l.session != s || l.request != request.ID {
		l.end()
		e.looking = e.beginLook(ctx, s, request.ID)
		return false, nil
	}
	l := e.looking
	select {
	case <-l.done:
	default:
		return false, nil
	}
	e.looking = nil
	if l.err != nil {
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		return true, e.finish(ctx, request, l.err.Error())
	}
	if err := e.tables.NoteRequest(ctx, request.ID, int64(l.unrecorded), int64(l.missed)); err != nil {
		e.looking = l
		return false, err
	}
	return true, e.finish(ctx, request, "")
}

func (e *Executor) beginLook(ctx context.Context, s Session, request int64) *look {
	ctx, cancel := context.WithCancel(ctx)
	l := &look{session: s, request: request, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(l.done)
		defer cancel()
		l.unrecorded, l.missed, l.err = e.host.Look(ctx)
	}()
	return l
}
