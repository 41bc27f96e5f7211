//go:build unix

package cli

import (
	"syscall"
	"time"
)

// usedCPU is the CPU time, user and system, that the process has used.
func usedCPU() (used time.Duration, known bool) {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0, false
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), true
}
