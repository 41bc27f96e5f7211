//go:build !linux

package embedded

import (
	"context"
	"errors"
	"runtime"

	"github.com/cdc-relay/cdc-relay/test/embedded/child"
)

// Only Linux ends a child when its parent is killed, and a demo must leave nothing behind.
var errNotLinux = errors.New("needs Linux, and this is " + runtime.GOOS +
	": run it in a container, or give the address of a server")

func supported() error { return errNotLinux }

type account struct{}

func serverAccount() (*account, error)  { return nil, errNotLinux }
func (a *account) own(string) error     { return errNotLinux }
func (a *account) reaches(string) error { return errNotLinux }

func startServer(*account, PostgresConfig, string, ...string) (*child.Process, error) {
	return nil, errNotLinux
}
func run(context.Context, *account, string, string, ...string) error { return errNotLinux }

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
