//go:build !unix

package cli

import "time"

// usedCPU is not known here.
func usedCPU() (used time.Duration, known bool) { return 0, false }
