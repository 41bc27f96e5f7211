package db

import (
	"syscall"
	"time"
)

// setUserTimeout makes a write that no one acknowledges fail after the time-out (TCP_USER_TIMEOUT of tcp(7), Linux):
// keep-alive probes are not sent while data is on its way, so they alone leave a cut connection open for minutes.
func setUserTimeout(_, _ string, c syscall.RawConn) error {
	const tcpUserTimeout = 18
	var failed error
	if err := c.Control(func(fd uintptr) {
		failed = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(unacknowledgedFor/time.Millisecond))
	}); err != nil {
		return err
	}
	if failed == syscall.ENOPROTOOPT || failed == syscall.EOPNOTSUPP { // a unix socket
		return nil
	}
	return failed
}
