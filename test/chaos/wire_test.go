package chaos

import (
	"net"
	"sync"
)

// wire forwards TCP connections to one server, and can cut them all or go silent, as a network does that loses
// everything: no connection ends while it is silent, whatever the server does.
type wire struct {
	listener net.Listener
	target   string
	silence  sync.RWMutex // held for writing while nothing passes

	mu     sync.Mutex // guards what follows
	open   map[net.Conn]struct{}
	closed bool

	running sync.WaitGroup
}

func newWire(target string) (*wire, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	w := &wire{listener: l, target: target, open: map[net.Conn]struct{}{}}
	w.running.Go(w.accept)
	return w, nil
}

func (w *wire) accept() {
	for {
		client, err := w.listener.Accept()
		if err != nil {
			return // closed
		}
		w.running.Go(func() { w.serve(client) })
	}
}

func (w *wire) serve(client net.Conn) {
	defer w.drop(client)
	if !w.track(client) {
		return
	}
	server, err := net.Dial("tcp", w.target)
	if err != nil {
		return
	}
	defer w.drop(server)
	if !w.track(server) {
		return
	}
	var copying sync.WaitGroup
	for _, way := range [2][2]net.Conn{{client, server}, {server, client}} {
		copying.Go(func() {
			w.copy(way[1], way[0])
			w.drop(client)
			w.drop(server)
		})
	}
	copying.Wait()
}

// waitForSound returns when something may pass.
func (w *wire) waitForSound() {
	w.silence.RLock()
	defer w.silence.RUnlock()
}

// copy forwards until one side ends, and lets nothing pass, not even that end, while the wire is silent.
func (w *wire) copy(to, from net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		w.waitForSound()
		if n > 0 {
			if _, failed := to.Write(buffer[:n]); failed != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (w *wire) track(c net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	w.open[c] = struct{}{}
	return true
}

func (w *wire) drop(c net.Conn) {
	_ = c.Close()
	w.mu.Lock()
	delete(w.open, c)
	w.mu.Unlock()
}

// cut breaks every connection at once.
func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.open {
		_ = c.Close()
	}
}

// mute lets nothing pass until the function that it returns is called.
func (w *wire) mute() (unmute func()) {
	w.silence.Lock()
	return w.silence.Unlock
}

func (w *wire) address() string { return w.listener.Addr().String() }

func (w *wire) close() error {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	err := w.listener.Close()
	w.cut()
	w.running.Wait()
	return err
}
