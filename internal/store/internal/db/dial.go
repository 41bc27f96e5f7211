package db

import (
	"net"
	"time"
)

// A connection that was cut without a FIN is noticed within 15 s when idle and 15 s when data is on its way.
const (
	keepAliveIdle     = 9 * time.Second
	keepAliveInterval = 2 * time.Second
	keepAliveCount    = 3
	unacknowledgedFor = 15 * time.Second
)

func newDialer(timeout time.Duration) *net.Dialer {
	return &net.Dialer{
		Timeout: timeout,
		KeepAliveConfig: net.KeepAliveConfig{
			Enable: true, Idle: keepAliveIdle, Interval: keepAliveInterval, Count: keepAliveCount,
		},
		Control: setUserTimeout,
	}
}
