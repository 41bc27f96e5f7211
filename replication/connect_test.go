//go:build linux

package replication

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"
)

// newMute is a server that lets clients in and answers nothing that they ask; cancelled gets a token when one of them
// wants its question to be cancelled, by a connection of its own.
func newMute(t *testing.T) (port int, cancelled <-chan struct{}) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	asked := make(chan struct{}, 1)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				b := pgproto3.NewBackend(conn, conn)
				switch m, _ := b.ReceiveStartupMessage(); m.(type) {
				case *pgproto3.CancelRequest:
					asked <- struct{}{}
				case *pgproto3.StartupMessage:
					b.Send(&pgproto3.AuthenticationOk{})
					b.Send(&pgproto3.BackendKeyData{ProcessID: 1, SecretKey: make([]byte, 4)})
					b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
					_ = b.Flush()
					_, _ = io.Copy(io.Discard, conn)
				}
			}()
		}
	}()
	return l.Addr().(*net.TCPAddr).Port, asked
}

// pgx cancels what a host does not answer in a goroutine of its own, by a connection that it dials as any other, while
// the next host is tried. Break it catches: that connection taken for the stream's. Seen to fail, under the race
// detector, with the socket noted where it is dialled.
func TestHostThatDoesNotAnswerLeavesTheNextAlone(t *testing.T) {
	f := newFixture(t)
	port, cancelled := newMute(t)
	own := fmt.Sprintf("127.0.0.1:%d", server.Port())
	f.c.URL = strings.Replace(f.c.URL, own, fmt.Sprintf("127.0.0.1:%d,%s", port, own), 1) +
		"&target_session_attrs=read-write&connect_timeout=1"
	r := f.open()
	<-cancelled
	if got := r.link.net.RemoteAddr().String(); got != own {
		t.Errorf("the stream's socket: got one to %s, want the one to %s", got, own)
	}
	f.exec("INSERT INTO box VALUES (1, 'x')")
	r.confirmAll(t, 1)
	r.finish(t)
}
