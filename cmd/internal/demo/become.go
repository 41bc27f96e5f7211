//go:build unix

package demo

import (
	"fmt"
	"syscall"

	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
)

// Become makes this process cdc-relay-demo, with the same command line, so that signals and the exit code are its own.
func Become(a *cli.App) error {
	path, err := find()
	if err != nil {
		return err
	}
	if err := syscall.Exec(path, append([]string{Program}, a.Args...), a.Environ); err != nil {
		return fmt.Errorf("run %s: %w", path, err)
	}
	return nil
}
