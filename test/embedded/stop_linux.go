package embedded

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/cdc-relay/cdc-relay/test/embedded/child"
)

// Fast does a fast shutdown: sessions are ended, replication clients get the last WAL and must confirm it, and a
// checkpoint is written. It returns when the server has ended, or with an error when ctx ends first; the shutdown then
// goes on.
func (p *Postgres) Fast(ctx context.Context) error {
	server := p.running()
	if server == nil {
		return nil
	}
	server.Signal(syscall.SIGINT)
	server.Thaw()
	select {
	case <-server.Done():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("fast shutdown of Postgres: %w", ctx.Err())
	}
}

// Immediate does an immediate shutdown: the server aborts without a checkpoint, as in a crash, and recovers at its next
// start.
func (p *Postgres) Immediate() error {
	server := p.running()
	if server == nil {
		return nil
	}
	server.Signal(syscall.SIGQUIT)
	server.Thaw()
	select {
	case <-server.Done():
		return nil
	case <-time.After(immediatePatience):
		return p.Kill9()
	}
}

// Kill9 kills the postmaster and all its children with SIGKILL, as the kernel does to a container that is out of
// memory, and returns when they are gone.
func (p *Postgres) Kill9() error {
	server := p.running()
	if server == nil {
		return nil
	}
	server.Kill()
	return nil
}

// Freeze stops the server and its sessions with SIGSTOP. Connections stay open and go silent, as behind a broken
// network. A frozen server is ended by any of the other methods, but by no one if this process is killed in the
// meantime.
func (p *Postgres) Freeze() error {
	if server := p.running(); server != nil {
		server.Freeze()
		return nil
	}
	return fmt.Errorf("freeze Postgres: it does not run")
}

// Thaw lets a frozen server go on.
func (p *Postgres) Thaw() error {
	if server := p.running(); server != nil {
		server.Thaw()
		return nil
	}
	return fmt.Errorf("thaw Postgres: it does not run")
}

func (p *Postgres) running() *child.Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.server == nil || p.server.Ended() {
		return nil
	}
	return p.server
}
