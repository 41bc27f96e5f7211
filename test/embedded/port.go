package embedded

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// FreePort finds a TCP port on 127.0.0.1 that no one listens on. It stays below 32768, where Linux begins to take the
// local ports of outgoing connections: a client that tries again and again to reach a stopped server there would sooner
// or later connect to itself and keep the server from starting again.
func FreePort() (int, error) {
	const first, last, attempts = 15000, 32000, 100
	var failures []error
	for range attempts {
		port := first + rand.IntN(last-first)
		listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			failures = append(failures, err)
			continue
		}
		if err := listener.Close(); err != nil {
			return 0, fmt.Errorf("find a free port: %w", err)
		}
		return port, nil
	}
	return 0, fmt.Errorf("find a free port: %w", errors.Join(failures[0], failures[attempts-1]))
}
