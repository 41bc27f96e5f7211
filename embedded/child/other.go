//go:build !linux

// Package child runs server processes that never outlive this one, whatever happens to it. Linux only, because only
// Linux tells a child of its parent's death.
package child

// Process is never made on this system.
type Process struct{}

// PID is its process id.
func (p *Process) PID() int { return 0 }

// Done is closed when it has ended.
func (p *Process) Done() <-chan struct{} { return nil }

// Ended says whether it has ended.
func (p *Process) Ended() bool { return true }

// Kill ends it.
func (p *Process) Kill() {}

// LastWords is the end of its log.
func (p *Process) LastWords() string { return "" }
