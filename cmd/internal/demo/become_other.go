//go:build !unix

package demo

import (
	"errors"

	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
)

// Become is for systems on which the demo's servers can run.
func Become(*cli.App) error {
	return cli.Usage(errors.New("the demo starts servers of its own, which works on Linux only"))
}
