//go:build !linux

package child

import (
	"errors"
	"runtime"
	"syscall"
)

// Process is never made on this system.
type Process struct{}

// Start is not available on this system.
func Start(Config) (*Process, error) {
	return nil, errors.New("server processes need Linux, and this is " + runtime.GOOS)
}

// PID is its process id.
func (p *Process) PID() int { return 0 }

// Done is closed when it has ended.
func (p *Process) Done() <-chan struct{} { return nil }

// Ended reports whether it has ended.
func (p *Process) Ended() bool { return true }

// ExitCode is its exit code once Done is closed.
func (p *Process) ExitCode() int { return -1 }

// LastWords is the end of its log.
func (p *Process) LastWords() string { return "" }

// Signal sends a signal.
func (p *Process) Signal(syscall.Signal) {}

// Kill ends it.
func (p *Process) Kill() {}

// Freeze stops it.
func (p *Process) Freeze() {}

// Thaw lets it go on.
func (p *Process) Thaw() {}
