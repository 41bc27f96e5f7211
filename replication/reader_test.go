package replication

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
	"testing/iotest"

	"github.com/jackc/pgx/v5/pgproto3"
)

// message is one protocol message as it is on the wire.
func message(kind byte, body []byte) []byte {
	b := binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(body)+4))
	return append(b, body...)
}

// ragged gives at most n bytes a read, to cut messages at every place.
func ragged(r io.Reader, n int) io.Reader {
	return readerFunc(func(p []byte) (int, error) { return r.Read(p[:min(len(p), 1+rand.IntN(n))]) })
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// Fails when next hands out a message before all of it was read, when fill loses the incomplete rest while it moves to
// a new chunk, or when a chunk that was handed out is written again.
func TestFrameReaderKeepsEveryByteAcrossChunks(t *testing.T) {
	var wire []byte
	var want [][]byte
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range 3000 {
		size := rnd.IntN(200)
		if i%500 == 0 {
			size = chunkSize*2 + rnd.IntN(1000)
		}
		body := bytes.Repeat([]byte{byte(i)}, size)
		want = append(want, body)
		wire = append(wire, message('d', body)...)
	}
	for _, step := range []int{1, 7, 4096, 1 << 20} {
		f := frameReader{src: ragged(bytes.NewReader(wire), step)}
		var got [][]byte
		var batch Batch
		for len(got) < len(want) {
			kind, body, ok, err := f.next()
			if err != nil || (ok && kind != 'd') {
				t.Fatalf("reads of up to %d: message %d: kind %q, error %v", step, len(got), kind, err)
			}
			if ok {
				batch.use(f.chunk)
				got = append(got, body) // a chunk that is filled again too early would show below
				continue
			}
			if err := f.fill(); err != nil {
				t.Fatalf("reads of up to %d: after %d messages: %v", step, len(got), err)
			}
		}
		for i := range want {
			if !bytes.Equal(got[i], want[i]) {
				t.Fatalf("reads of up to %d: message %d differs: %d bytes, want %d", step, i, len(got[i]), len(want[i]))
			}
		}
	}
}

// Fails when the length is not checked before it is used.
func TestFrameReaderRefusesImpossibleLengths(t *testing.T) {
	for _, length := range []uint32{0, 3, maxMessage + 1, 1<<32 - 1} {
		f := frameReader{src: bytes.NewReader(binary.BigEndian.AppendUint32([]byte{'d'}, length))}
		if err := f.fill(); err != nil {
			t.Fatal(err)
		}
		if _, _, ok, err := f.next(); err == nil {
			t.Errorf("length %d: got ok = %t and no error, want an error", length, ok)
		}
	}
}

// Fails when messageReader hands out a byte of the message behind the one that the frontend asked for: the stream's
// first WAL would be lost in the frontend's buffer.
func TestFrontendReadsNothingBeyondItsMessage(t *testing.T) {
	wire := append(message('Z', []byte{'I'}), message('N', append([]byte("MCopyBoth comes next"), 0, 0))...)
	stream := message('d', []byte("first WAL"))
	for _, cut := range []func(io.Reader) io.Reader{func(r io.Reader) io.Reader { return r }, iotest.OneByteReader,
		iotest.HalfReader} {
		src := cut(bytes.NewReader(append(bytes.Clone(wire), stream...)))
		front := pgproto3.NewFrontend(&messageReader{src: src}, io.Discard)
		for range 2 {
			if _, err := front.Receive(); err != nil {
				t.Fatal(err)
			}
		}
		rest, err := io.ReadAll(src)
		if err != nil || !bytes.Equal(rest, stream) {
			t.Errorf("left for the stream: %q, %v; want %q", rest, err, stream)
		}
	}
}

// Fails when an error in the middle of a header is swallowed.
func TestMessageReaderReturnsErrors(t *testing.T) {
	src := io.MultiReader(bytes.NewReader([]byte{'Z', 0}), iotest.ErrReader(io.ErrClosedPipe))
	if _, err := (&messageReader{src: src}).Read(make([]byte, 10)); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("got %v, want %v", err, io.ErrClosedPipe)
	}
}

// Fails when a batch that is given back does not release the chunks of its messages, when the reader does not release a
// chunk that it has left, and when a batch that keeps its messages' data lets it be overwritten.
func TestChunksAreFilledAgainOnceNobodyUsesThem(t *testing.T) {
	wire := bytes.Repeat(message('d', bytes.Repeat([]byte{7}, 1000)), 4000)
	for _, keep := range []bool{false, true} {
		f := frameReader{src: bytes.NewReader(wire)}
		seen := map[*chunk]bool{}
		var kept [][]byte
		for n := 0; n < 4000; {
			b := new(Batch)
			for {
				_, body, ok, err := f.next()
				if err != nil {
					t.Fatal(err)
				}
				if !ok {
					break
				}
				b.use(f.chunk)
				kept = append(kept, body)
				n++
			}
			for _, c := range b.chunks {
				seen[c] = true
			}
			b.Recycle(keep)
			if n < 4000 {
				if err := f.fill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		// more than 60 without; the pool forgets some under the race detector and at a collection
		if !keep && len(seen) > 40 {
			t.Errorf("%d chunks were made for 4 MB in pieces of %d bytes that were given back at once", len(seen), chunkSize)
		}
		for i, body := range kept {
			if keep && (body[0] != 7 || body[len(body)-1] != 7) {
				t.Fatalf("message %d was overwritten though its batch kept it", i)
			}
		}
	}
}
