// Package child runs server processes that never outlive this one, whatever happens to it. Linux only, because only
// Linux tells a child of its parent's death; elsewhere Start returns an error.
//
// Tested in child_linux_test.go; elsewhere there is nothing to test.
package child

import (
	"io"
	"syscall"
)

// Config says what to run.
type Config struct {
	Path, Dir   string
	Args        []string
	Env         []string       // the whole environment; nil = this process's
	As          *Account       // whom to run as; nil = as this process
	Log         io.Writer      // takes stdout and stderr; nil = only the end is kept, see LastWords
	DeathSignal syscall.Signal // sent to it when this process dies
}

// Account is a user and a group of the system.
type Account struct{ UID, GID uint32 }
