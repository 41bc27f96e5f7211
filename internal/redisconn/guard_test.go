package redisconn

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// liar is a server that says the same, whatever it is asked, on each connection.
func liar(t testing.TB, said []byte) string {
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
				if _, err := bufio.NewReader(conn).ReadByte(); err == nil {
					_, _ = conn.Write(said)
				}
			}()
		}
	}()
	return l.Addr().String()
}

// questions are those of the drivers and of check, by their kind of answer.
var questions = []func(context.Context, redis.UniversalClient) error{
	func(ctx context.Context, c redis.UniversalClient) error { return c.Ping(ctx).Err() },
	func(ctx context.Context, c redis.UniversalClient) error {
		return c.Eval(ctx, "return 1", []string{"k"}).Err()
	},
	func(ctx context.Context, c redis.UniversalClient) error {
		return c.XRangeN(ctx, "s", "-", "+", 10).Err()
	},
	func(ctx context.Context, c redis.UniversalClient) error { return c.XInfoStream(ctx, "s").Err() },
	func(ctx context.Context, c redis.UniversalClient) error { return c.LRange(ctx, "l", 0, 9).Err() },
	func(ctx context.Context, c redis.UniversalClient) error { return c.Info(ctx).Err() },
	func(ctx context.Context, c redis.UniversalClient) error { return c.ConfigGet(ctx, "*").Err() },
	func(ctx context.Context, c redis.UniversalClient) error {
		return c.Do(ctx, "ACL", "DRYRUN", "u", "PING").Err()
	},
	func(ctx context.Context, c redis.UniversalClient) error { return c.ClusterSlots(ctx).Err() },
}

// wantBounded asks each question of a server that says that.
func wantBounded(t testing.TB, said []byte) {
	t.Helper()
	c := Config{URL: "redis://" + liar(t, said), DialTimeout: 5 * time.Second, RequestTimeout: 5 * time.Second}
	options, err := c.options()
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(options)
	client.AddHook(recovered{})
	defer client.Close()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, ask := range questions {
		_ = ask(t.Context(), client)
	}
	runtime.ReadMemStats(&after)
	// A list of a million, or a string of the largest size, may be believed before it is there.
	most := uint64(len(questions))*(mostBulk+64*mostElements) + 16<<20
	if took := after.TotalAlloc - before.TotalAlloc; took > most {
		t.Errorf("answers of %d bytes took %d bytes of memory, more than %d", len(said), took, most)
	}
}

// dialogue is an answer of each form.
const dialogue = "-ERR unknown command 'HELLO'\r\n+PONG\r\n-ERR no\r\n:12\r\n$5\r\nhello\r\n*-1\r\n$-1\r\n" +
	"*2\r\n*2\r\n$3\r\n1-1\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n*2\r\n$3\r\n1-2\r\n*0\r\n"

// Whole exchanges with a server whose answers are damaged: each question ends, and takes no memory beyond the bounds.
// Seen to fail without the guard: the process ends, out of memory.
func TestDamagedAnswersCostTheirConnection(t *testing.T) {
	lies := []string{"$9223372036854775800\r\n", "*9223372036854775800\r\n", "*2147483647\r\n", "$2147483647\r\nx",
		strings.Repeat("*1\r\n", 100_000), strings.Repeat("*1000000\r\n", 100), strings.Repeat("x", 1<<20),
		"%-5\r\n", "~9223372036854775800\r\n", "HTTP/1.1 400 Bad Request\r\n\r\n", "$-7\r\n", "\r\n", "*\r\n", ">3\r\n"}
	for _, lie := range lies {
		wantBounded(t, []byte(lie))
		wantBounded(t, []byte("-ERR unknown command 'HELLO'\r\n"+lie)) // the client asks for it first
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range harness.Count(t, "damaged answers of Redis") {
		said := []byte(dialogue)
		for range 1 + random.IntN(4) {
			switch at := random.IntN(len(said)); random.IntN(3) {
			case 0:
				said = append(said[:at:at], append([]byte(lies[random.IntN(4)]), said[at:]...)...)
			case 1:
				said[at] = byte(random.Uint32())
			case 2:
				said = said[:at+1]
			}
		}
		wantBounded(t, said)
	}
}

func FuzzAnswers(f *testing.F) {
	f.Add([]byte(dialogue))
	f.Fuzz(func(t *testing.T, said []byte) { wantBounded(t, said) })
}

// piecemeal gives a byte at a time.
type piecemeal struct {
	net.Conn
	r io.Reader
}

func (p piecemeal) Read(b []byte) (int, error) { return p.r.Read(b[:min(1, len(b))]) }
func (piecemeal) Close() error                 { return nil }

// Breaks it catches: an answer that is refused though it is in order; one that is let pass because its parts arrive one
// by one. Seen to fail with the ends of nested lists not counted.
func TestTheGuardLetsAnswersPassAsTheyAre(t *testing.T) {
	said := strings.Repeat(dialogue, 3) + fmt.Sprintf("$%d\r\n%s\r\n", 100_000, strings.Repeat("\n", 100_000))
	for _, whole := range []bool{true, false} {
		var conn net.Conn = piecemeal{r: strings.NewReader(said)}
		g := newGuard(conn)
		var got bytes.Buffer
		buffer := make([]byte, 1)
		if whole {
			buffer = make([]byte, 4096)
		}
		if _, err := io.CopyBuffer(&got, struct{ io.Reader }{g}, buffer); err != nil || got.String() != said {
			t.Errorf("whole %v: got %d bytes, %v, want %d", whole, got.Len(), err, len(said))
		}
		if len(g.left) != 0 || g.elements != 0 {
			t.Errorf("whole %v: lists that are open in the end: %v", whole, g.left)
		}
	}
	g := newGuard(piecemeal{r: strings.NewReader("*1\r\n$99999999999\r\n")})
	if _, err := io.ReadAll(g); !errors.Is(err, ErrNotRedis) {
		t.Errorf("a lie by bytes: got %v, want %v", err, ErrNotRedis)
	}
}
