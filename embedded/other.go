//go:build !linux

package embedded

import (
	"context"
	"errors"
	"io"
	"runtime"
)

// Only Linux ends a child when its parent is killed, and a demo must leave nothing behind.
var errNotLinux = errors.New("needs Linux, and this is " + runtime.GOOS + ": run it in a container, or give the address of a server")

func supported() error { return errNotLinux }

type account struct{}

func serverAccount() (*account, error)  { return nil, errNotLinux }
func (a *account) own(string) error     { return errNotLinux }
func (a *account) reaches(string) error { return errNotLinux }

type process struct{ done chan struct{} }

func startProcess(*account, string, io.Writer, string, ...string) (*process, error) {
	return nil, errNotLinux
}
func run(context.Context, *account, string, string, ...string) error { return errNotLinux }

func (p *process) pid() int          { return 0 }
func (p *process) ended() bool       { return true }
func (p *process) kill()             {}
func (p *process) lastWords() string { return "" }

// Fast is not available on this system.
func (p *Postgres) Fast(context.Context) error { return errNotLinux }

// Immediate is not available on this system.
func (p *Postgres) Immediate() error { return errNotLinux }

// Kill9 is not available on this system.
func (p *Postgres) Kill9() error { return errNotLinux }

// Freeze is not available on this system.
func (p *Postgres) Freeze() error { return errNotLinux }

// Thaw is not available on this system.
func (p *Postgres) Thaw() error { return errNotLinux }
