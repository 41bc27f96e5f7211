package nats

import (
	"bufio"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// liar is a server that says so when someone connects, and when someone asks.
func liar(t testing.TB, hello, said string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.WriteString(conn, hello)
				lines := bufio.NewScanner(conn)
				for lines.Scan() {
					if strings.HasPrefix(lines.Text(), "PING") {
						_, _ = io.WriteString(conn, "PONG\r\n"+said)
					}
				}
			}()
		}
	}()
	return "nats://" + l.Addr().String()
}

const hello = `INFO {"server_id":"x","version":"2.12.0","proto":1,"headers":true,"jetstream":true,` +
	`"max_payload":1048576}` + "\r\n"

// lies are messages that no server sends.
var lies = []string{
	"MSG _INBOX.x 1 9223372036854775800\r\nx", "MSG _INBOX.x 1 2147483647\r\nx", "HMSG a 1 9 3\r\n",
	"hmsg a 1 12 99999999999\r\nNATS/1.0\r\n", "MSG a 1 -5\r\n", "MSG\r\n", "MSG a 1 99999999999999999999999\r\n",
	strings.Repeat("x", 4<<20), "HTTP/1.1 400 Bad Request\r\n\r\n", "INFO " + strings.Repeat("{", 2<<20), "\x16\x03\x01",
	"INFO {}\r\nINFO {\"connect_urls\":[\"%zz\"]}\r\n", "-ERR '" + strings.Repeat("e", 2<<20),
}

// wantBounded asks a server that says so.
func wantBounded(t testing.TB, hello, said string) {
	t.Helper()
	c := Config{URL: liar(t, hello, said), DialTimeout: 2 * time.Second, RequestTimeout: 50 * time.Millisecond}
	c = c.withDefaults()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if nc, err := c.connect(func(error) {}, func() {}); err == nil {
		_, _ = nc.Request("$JS.API.INFO", nil, c.RequestTimeout)
		nc.Close()
	}
	runtime.ReadMemStats(&after)
	if took, most := after.TotalAlloc-before.TotalAlloc, uint64(64<<20+20*len(said)); took > most {
		t.Errorf("%d bytes of answers took %d bytes of memory, more than %d", len(said), took, most)
	}
}

// A server's sizes are lies. Break it catches: the process ends in the client's own goroutine. Seen to fail without the
// guard: panic: index out of range.
func TestDamagedAnswersCostTheirConnection(t *testing.T) {
	for _, lie := range lies {
		wantBounded(t, hello, lie)
		wantBounded(t, lie, "")
		wantBounded(t, hello+lie, "")
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range harness.Count(t, "damaged answers of NATS") {
		said := []byte(hello + "PING\r\nMSG _INBOX.a.b 1 5\r\nhello\r\nHMSG _INBOX.a 1 12 14\r\nNATS/1.0\r\n\r\nhi\r\n")
		for range 1 + random.IntN(4) {
			said[random.IntN(len(said))] = byte(random.Uint32())
		}
		wantBounded(t, string(said), "")
	}
}

func FuzzAnswers(f *testing.F) {
	f.Add(hello, "MSG _INBOX.a.b 1 5\r\nhello\r\n")
	f.Fuzz(func(t *testing.T, hello, said string) { wantBounded(t, hello, said) })
}

// parts gives so many bytes at a time.
type parts struct {
	net.Conn
	r    io.Reader
	most int
}

func (p parts) Read(b []byte) (int, error) { return p.r.Read(b[:min(p.most, len(b))]) }
func (parts) Close() error                 { return nil }

// Breaks it catches: a line or a message that is refused though it is in order, one that is cut where its parts meet.
// Seen to fail with the line's end behind a message left out.
func TestTheGuardLetsMessagesPassAsTheyAre(t *testing.T) {
	said := hello + "PING\r\nMSG a 1 5\r\nMSG 9\r\nMSG a 1 reply 0\r\n\r\nHMSG a 1 12 14\r\nNATS/1.0\r\n\r\nhi\r\n" +
		"+OK\r\n-ERR 'x'\r\n"
	for most := 1; most < 40; most++ {
		got, err := io.ReadAll(newGuard(parts{r: strings.NewReader(said), most: most}))
		if err != nil || string(got) != said {
			t.Errorf("%d bytes at a time: got %q, %v, want %q", most, got, err, said)
		}
	}
	if _, err := io.ReadAll(newGuard(parts{r: strings.NewReader(lies[0]), most: 1})); !errors.Is(err, errNotNATS) {
		t.Errorf("a lie: got %v, want %v", err, errNotNATS)
	}
}
