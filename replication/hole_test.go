//go:build linux

package replication

import (
	"io"
	"net"
	"sync/atomic"
	"testing"
)

// hole is a proxy that can stop to carry anything, without closing.
type hole struct {
	listener net.Listener
	swallow  atomic.Bool
}

func newHole(t *testing.T, target string) *hole {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := &hole{listener: l}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			upstream, err := net.Dial("tcp", target)
			if err != nil {
				client.Close()
				continue
			}
			for _, pair := range [][2]net.Conn{{client, upstream}, {upstream, client}} {
				t.Cleanup(func() { pair[0].Close() })
				go func() {
					_, _ = io.Copy(readerWriter{pair[1], h}, pair[0])
					if !h.swallow.Load() { // else not even the end gets through
						pair[0].Close()
						pair[1].Close()
					}
				}()
			}
		}
	}()
	return h
}

func (h *hole) port() int { return h.listener.Addr().(*net.TCPAddr).Port }

type readerWriter struct {
	to io.Writer
	h  *hole
}

func (w readerWriter) Write(p []byte) (int, error) {
	if w.h.swallow.Load() {
		return len(p), nil
	}
	return w.to.Write(p)
}
