package relay

import (
	"context"

	"github.com/cdc-relay/cdc-relay/store"
)

// look is a look at the whole table that somebody asked for. It goes on beside other requests, because it takes as long as
// the table is large. One that its session does not live to see is begun again by the next.
type look struct {
	session *session
	request int64
	cancel  context.CancelFunc
	done    chan struct{} // closed at the end; then the rest is set
	report  ReconcileReport
	err     error
}

// end gives up a look, and returns when nothing of it runs; nil is none.
func (l *look) end() {
	if l != nil {
		l.cancel()
		<-l.done
	}
}

// reconcile begins the look that is asked for, or sees whether it is over.
func (e *executor) reconcile(ctx context.Context, s *session, request *store.Request) (more bool, err error) {
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
			return false, nil
		}
		return true, e.finish(ctx, request, l.err.Error())
	}
	if err := e.tables.NoteRequest(ctx, request.ID, int64(l.report.Unrecorded), int64(l.report.Missed)); err != nil {
		e.looking = l
		return false, err
	}
	return true, e.finish(ctx, request, "")
}

func (e *executor) beginLook(ctx context.Context, s *session, request int64) *look {
	ctx, cancel := context.WithCancel(ctx)
	l := &look{session: s, request: request, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(l.done)
		defer cancel()
		l.report, l.err = e.r.Reconcile(ctx)
	}()
	return l
}
