package harness

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
)

// erlangMapper stands in for epmd, Erlang's port mapper, of one node: it tells the node other ports for its peers than
// their own, which lead through proxies. The protocol is at
// https://www.erlang.org/doc/apps/erts/erl_dist_protocol.html.
type erlangMapper struct {
	listener net.Listener
	ports    map[string]int // by the node's name before the @; unchanged once the mapper runs
	starts   atomic.Uint32  // of nodes: each gets a number of its own
	running  sync.WaitGroup

	mu   sync.Mutex
	open map[net.Conn]struct{} // guarded by mu; nil once the mapper is closed
}

func newErlangMapper(ports map[string]int) (*erlangMapper, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for Erlang's nodes: %w", err)
	}
	m := &erlangMapper{listener: l, ports: ports, open: map[net.Conn]struct{}{}}
	m.running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // closed
			}
			m.running.Go(func() { m.serve(c) })
		}
	})
	return m, nil
}

func (m *erlangMapper) port() int { return m.listener.Addr().(*net.TCPAddr).Port }

func (m *erlangMapper) close() error {
	err := m.listener.Close()
	m.mu.Lock()
	for c := range m.open {
		err = errors.Join(err, c.Close())
	}
	m.open = nil
	m.mu.Unlock()
	m.running.Wait()
	return err
}

// serve answers one question. The connection on which a node registers is open as long as the node lives.
func (m *erlangMapper) serve(c net.Conn) {
	m.mu.Lock()
	if m.open == nil {
		m.mu.Unlock()
		_ = c.Close()
		return
	}
	m.open[c] = struct{}{}
	m.mu.Unlock()
	registered := m.answer(c) == nil
	if registered {
		_, _ = io.Copy(io.Discard, c)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.open != nil {
		delete(m.open, c)
		_ = c.Close()
	}
}

var errAnswered = errors.New("the question is answered")

// answer returns nil when the connection stays.
func (m *erlangMapper) answer(c net.Conn) error {
	var size [2]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return err
	}
	question := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(c, question); err != nil {
		return err
	}
	if len(question) == 0 {
		return errAnswered
	}
	switch question[0] {
	case 'x': // ALIVE2_REQ
		_, err := c.Write(binary.BigEndian.AppendUint32([]byte{'v', 0}, m.starts.Add(1)+10)) // below are reserved
		return err
	case 'z': // PORT_PLEASE2_REQ
		name := string(question[1:])
		port, known := m.ports[name]
		if !known {
			_, _ = c.Write([]byte{'w', 1})
			return errAnswered
		}
		b := binary.BigEndian.AppendUint16([]byte{'w', 0}, uint16(port))
		b = append(b, 'M', 0, 0, 6, 0, 5) // a normal node, TCP, versions 5 to 6
		b = append(binary.BigEndian.AppendUint16(b, uint16(len(name))), name...)
		_, _ = c.Write(append(b, 0, 0))
	case 'n': // NAMES_REQ: none that a node could take for itself
		_, _ = c.Write(binary.BigEndian.AppendUint32(nil, uint32(m.port())))
	}
	return errAnswered
}
