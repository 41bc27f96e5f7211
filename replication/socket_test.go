//go:build linux

package replication

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/binary"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
)

// script is a connection that gives so many bytes at each read, and notes when it was asked.
type script struct {
	net.Conn
	sizes []int
	asked []time.Time
}

func (c *script) Read(p []byte) (int, error) {
	n := min(c.sizes[len(c.asked)], len(p))
	c.asked = append(c.asked, time.Now())
	return n, nil
}

// Breaks it catches: a stream that is behind is read byte by byte; one that is not, or that has more than was read,
// waits for nothing; a wait that is longer than a socket buffer lasts. Seen to fail with the rest left out, with one
// for reads that filled their room, and with a rest as long as the stream is behind.
func TestReadsLieApartWhileTheStreamIsBehind(t *testing.T) {
	const room = 100
	for name, test := range map[string]struct {
		behind time.Duration
		size   int
		want   time.Duration
	}{
		"far behind":                {time.Hour, 10, mostRest},
		"behind":                    {20 * time.Millisecond, 10, 20 * time.Millisecond / restShare},
		"not behind":                {time.Millisecond, 10, 0},
		"far behind, more is there": {time.Hour, room, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conn := &script{sizes: []int{test.size, test.size, test.size}}
				s := newSocket(conn)
				s.stream(conn, func() time.Duration { return test.behind }, 0)
				for range conn.sizes {
					if n, err := s.Read(make([]byte, room)); n != test.size || err != nil {
						t.Fatalf("got %d bytes, %v", n, err)
					}
				}
				for i := range len(conn.asked) - 1 {
					if got := conn.asked[i+1].Sub(conn.asked[i]); got != test.want {
						t.Errorf("between reads %d and %d: got %v, want %v", i, i+1, got, test.want)
					}
				}
			})
		})
	}
}

// pipe is a connection whose peer writes so many bytes a second into a socket buffer, and waits while that is full.
type pipe struct {
	net.Conn
	rate   int // bytes per second
	buffer int
	at     time.Time // up to when the peer has written
	held   int
	oldest time.Time // when the first of them was written
	read   int
	reads  int
	waited time.Duration // the longest that a byte was in the buffer
}

// fill lets the peer write up to now.
func (c *pipe) fill() {
	now := time.Now()
	n := int(now.Sub(c.at) * time.Duration(c.rate) / time.Second)
	if n == 0 {
		return
	}
	if c.held == 0 {
		c.oldest = c.at
	}
	c.held, c.at = min(c.held+n, c.buffer), now
}

func (c *pipe) Read(p []byte) (int, error) {
	for c.fill(); c.held == 0; c.fill() {
		time.Sleep(50 * time.Microsecond)
	}
	n := min(c.held, len(p))
	if c.held -= n; c.held == 0 {
		c.waited = max(c.waited, time.Since(c.oldest))
	}
	c.read += n
	c.reads++
	return n, nil
}

// Breaks it catches: a wake-up for each message although the user allows a delay; a message that waits for longer than
// that; a server that waits for the reader because its socket is full.
func TestReadIntervalBoundsDelayAndWakeUpsAndSlowsNoOneDown(t *testing.T) {
	const every, buffer = 10 * time.Millisecond, 64 << 10
	for _, rate := range []int{10_000, 100_000, 1_000_000, 10_000_000, 60_000_000} {
		synctest.Test(t, func(t *testing.T) {
			conn := &pipe{rate: rate, buffer: buffer, at: time.Now()}
			s := newSocket(conn)
			s.stream(conn, nil, every)
			for began := time.Now(); time.Since(began) < 2*time.Second; {
				if _, err := s.Read(make([]byte, chunkSize)); err != nil {
					t.Fatal(err)
				}
				if time.Since(began) < time.Second { // it learns the pace
					conn.read, conn.reads, conn.waited = 0, 0, 0
				}
			}
			if want := float64(rate); float64(conn.read) < 0.98*want {
				t.Errorf("%d bytes/s: got %d in a second", rate, conn.read)
			}
			if most := 10 + max(int(time.Second/every), 2*rate/lookBytes); conn.reads > most {
				t.Errorf("%d bytes/s: got %d reads in a second, want at most %d", rate, conn.reads, most)
			}
			if conn.waited > every+time.Millisecond {
				t.Errorf("%d bytes/s: a byte waited for %v, want at most %v", rate, conn.waited, every)
			}
		})
	}
}

// secure lets the server answer with TLS, too, and returns the fixture's URL for it.
func (f *fixture) secure() string {
	f.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		f.t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		f.t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		f.t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{"server.crt": {Type: "CERTIFICATE", Bytes: certificate},
		"server.key": {Type: "PRIVATE KEY", Bytes: secret}} {
		// The server writes them itself: the key must be its own.
		f.exec(fmt.Sprintf("COPY (SELECT unnest(string_to_array('%s', E'\\n'))) TO PROGRAM 'umask 077; cat > %s'",
			strings.TrimSpace(string(pem.EncodeToMemory(block))), name))
	}
	f.exec("ALTER SYSTEM SET ssl = on")
	f.exec("SELECT pg_reload_conf()")
	url := strings.Replace(f.c.URL, "sslmode=disable", "sslmode=require", 1)
	for deadline := time.Now().Add(15 * time.Second); ; <-time.After(10 * time.Millisecond) {
		conn, err := pgx.Connect(f.t.Context(), url)
		if err == nil {
			_ = conn.Close(f.t.Context())
			return url
		}
		if time.Now().After(deadline) {
			f.t.Fatalf("the server does not take TLS: %v", err)
		}
	}
}

// Breaks it catches: a batch for each TLS record; a message that is lost or changed where records, what was read ahead
// and chunks meet. Seen to fail with nothing read ahead, and without a look for more.
func TestStreamOverTLSIsReadInBatches(t *testing.T) {
	f := newFixture(t)
	f.c.URL = f.secure()
	f.c.Behind = func() time.Duration { return time.Hour }
	const rows = 5000
	f.exec(fmt.Sprintf("INSERT INTO box SELECT n, repeat(md5(n::text), 1 + n %% 40) FROM generate_series(1, %d) n", rows))
	f.exec("INSERT INTO box VALUES (0, repeat('large', 100000))")
	r := f.open()
	want, got, batches := 1, 0, 0
	deadline := time.After(time.Minute)
	for got <= rows {
		select {
		case b, ok := <-r.Batches():
			if !ok {
				t.Fatalf("the stream ended: %v", <-r.end)
			}
			batches++
			for _, m := range b.Messages {
				if m.Keepalive || m.Data[0] != 'I' {
					continue
				}
				// Insert, relation, 'N', two columns, each 't', length, text.
				length := binary.BigEndian.Uint32(m.Data[9:])
				number := string(m.Data[13 : 13+length])
				body := m.Data[13+length+5:]
				switch {
				case number == "0":
					if !bytes.Equal(body, bytes.Repeat([]byte("large"), 100000)) {
						t.Errorf("the large row was changed")
					}
				case number != fmt.Sprint(want) || len(body) != 32*(1+want%40) || !bytes.Equal(body[:32], body[len(body)-32:]):
					t.Fatalf("got row %s with %d bytes, want %d", number, len(body), want)
				}
				want++
				got++
			}
			b.Recycle(false)
		case <-deadline:
			t.Fatalf("got %d rows within a minute", got)
		}
	}
	if batches > rows/4 {
		t.Errorf("got %d batches for %d rows, want many rows in each", batches, rows)
	}
	t.Logf("%d rows in %d batches", got, batches)
	r.finish(t)
}
