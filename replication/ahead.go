package replication

import "context"

// Ahead is a connection for a stream, made beside other work; see [Config]. Beyond what connecting asks, nothing is
// asked on it until [Open] uses it. The server counts it as a walsender (max_wal_senders). Its methods are called from
// one goroutine.
type Ahead struct {
	cancel context.CancelFunc
	done   chan struct{}
	used   bool // by Open, or given up

	// Written before done is closed.
	link *link
	err  error
}

// Dial begins to connect and returns at once; OnNotice may be called meanwhile. Close must follow, used or not.
func Dial(ctx context.Context, c Config) *Ahead {
	ctx, cancel := context.WithCancel(ctx)
	a := &Ahead{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(a.done)
		a.link, a.err = dial(ctx, c)
	}()
	return a
}

// connect dials, or takes the connection that was made ahead, and asks who the server is.
func connect(ctx context.Context, c Config) (*link, System, error) {
	if l, system := c.Ahead.take(ctx); l != nil {
		return l, system, nil
	}
	l, err := dial(ctx, c)
	if err != nil {
		return nil, System{}, err
	}
	system, err := l.identify(ctx)
	if err != nil {
		l.close()
		return nil, System{}, err
	}
	return l, system, nil
}

// take gives the connection and who the server is, or nil if it could not be made, or has ended since.
func (a *Ahead) take(ctx context.Context) (*link, System) {
	if a == nil || a.used {
		return nil, System{}
	}
	select {
	case <-a.done:
	case <-ctx.Done():
		return nil, System{}
	}
	if a.err != nil {
		return nil, System{}
	}
	system, err := a.link.identify(ctx)
	if err != nil {
		return nil, System{}
	}
	a.used = true
	return a.link, system
}

// Close gives the connection up, unless a session has it by now, and returns when it has ended.
func (a *Ahead) Close() {
	if a == nil {
		return
	}
	a.cancel()
	if a.used {
		return
	}
	a.used = true
	<-a.done
	if a.err == nil {
		a.link.close()
	}
}
