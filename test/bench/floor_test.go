package bench

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// floor is how fast, and at what price, the stream can be read when nothing is done with it.
type floor struct {
	took     time.Duration // from the stream's start to its end
	client   time.Duration // CPU of the reader
	postgres time.Duration // CPU of the server
}

// recvlogical finds Postgres's own client.
func recvlogical(t *testing.T) string {
	t.Helper()
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/pg_recvlogical") // the pattern is well formed
	if len(found) > 0 {
		return slices.Max(found)
	}
	path, err := exec.LookPath("pg_recvlogical")
	if err != nil && os.Getenv("CI") == "true" {
		t.Fatalf("pg_recvlogical is missing, and in CI that is a failure: %v", err)
	}
	if err != nil {
		t.Skipf("SKIPPED, NOTHING WAS MEASURED: pg_recvlogical is missing: %v", err)
	}
	return path
}

// address is Postgres's, over TLS where the relay's connection is.
func (r *run) address() string { return r.guard.address(r.t, r.variant, r.pg.URL) }

// recvlogicalFloor reads a slot up to end with pg_recvlogical and throws everything away. The time runs from its word
// that the stream has begun, which does not count its connecting, to its own end.
func (r *run) recvlogicalFloor(slot string, end uint64) floor {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), r.patience)
	defer cancel()
	command := exec.CommandContext(ctx, recvlogical(r.t), "--verbose", "--start", "--no-loop", "--file=/dev/null",
		"--dbname="+r.address(), "--slot="+slot, "--endpos="+pglogrepl.LSN(end).String(), "-o", "proto_version=1", "-o",
		"publication_names="+r.publication())
	command.WaitDelay = time.Second
	diagnostics, err := command.StderrPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	before := readPostgresCPU(r.t, r.pg.Server.PID())
	if err := command.Start(); err != nil {
		r.t.Fatalf("run pg_recvlogical: %v", err)
	}
	var begun, ended time.Time
	var said strings.Builder
	for lines := bufio.NewScanner(diagnostics); lines.Scan(); {
		if strings.Contains(lines.Text(), "streaming initiated") {
			begun = time.Now()
		}
		fmt.Fprintln(&said, lines.Text())
	}
	err = command.Wait()
	ended = time.Now()
	if err != nil || begun.IsZero() {
		r.t.Fatalf("run pg_recvlogical: %v: %.2000s", errors.Join(err, ctx.Err()), said.String())
	}
	state := command.ProcessState
	return floor{
		took: ended.Sub(begun), client: state.UserTime() + state.SystemTime(),
		postgres: readPostgresCPU(r.t, r.pg.Server.PID()).minus(before).total,
	}
}

// bareStream is one replication connection read by pglogrepl and nothing else.
type bareStream struct {
	conn *pgconn.PgConn
	end  pglogrepl.LSN // highest position received
}

func openBareStream(ctx context.Context, address, slot, publication string) (*bareStream, error) {
	conn, err := pgconn.Connect(ctx, address+"&replication=database")
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	err = pglogrepl.StartReplication(ctx, conn, slot, 0, pglogrepl.StartReplicationOptions{
		PluginArgs: []string{"proto_version '1'", "publication_names '" + publication + "'"},
	})
	if err != nil {
		_ = conn.Close(ctx)
		return nil, fmt.Errorf("start replication: %w", err)
	}
	return &bareStream{conn: conn}, nil
}

// close cuts the connection, so that it may be called while next waits.
func (s *bareStream) close() { _ = s.conn.Conn().Close() }

// next is the next message of pgoutput, valid until the following call; nil after a keepalive. It answers keepalives
// that want it. It has no bound: close ends it.
func (s *bareStream) next() ([]byte, error) {
	received, err := s.conn.ReceiveMessage(context.Background())
	if err != nil {
		return nil, fmt.Errorf("receive: %w", err)
	}
	copied, ok := received.(*pgproto3.CopyData)
	if !ok {
		return nil, fmt.Errorf("receive: got %T", received)
	}
	const header = 1 + 8 + 8 + 8 // of an XLogData message: kind, start, end, clock
	switch data := copied.Data; {
	case data[0] == pglogrepl.XLogDataByteID && len(data) > header:
		return data[header:], nil
	case data[0] == pglogrepl.PrimaryKeepaliveMessageByteID:
		alive, err := pglogrepl.ParsePrimaryKeepaliveMessage(data[1:])
		if err != nil {
			return nil, fmt.Errorf("read a keepalive: %w", err)
		}
		s.end = max(s.end, alive.ServerWALEnd)
		if alive.ReplyRequested {
			status := pglogrepl.StandbyStatusUpdate{WALWritePosition: s.end}
			if err := pglogrepl.SendStandbyStatusUpdate(context.Background(), s.conn, status); err != nil {
				return nil, fmt.Errorf("answer a keepalive: %w", err)
			}
		}
		return nil, nil
	default:
		return nil, fmt.Errorf("receive: unexpected message %q of %d bytes", data[0], len(data))
	}
}

// goFloor reads a slot up to end with the bare loop, in a Go program like the relay but in this process; the reader's
// CPU is not known apart. It counts the rows: the floor is of the same events.
func (r *run) goFloor(slot string, end uint64, events int) floor {
	r.t.Helper()
	before := readPostgresCPU(r.t, r.pg.Server.PID())
	stream, err := openBareStream(r.t.Context(), r.address(), slot, r.publication())
	if err != nil {
		r.t.Fatalf("read the slot by a bare loop: %v", err)
	}
	begun := time.Now()
	defer stream.close()
	stop := context.AfterFunc(r.t.Context(), stream.close)
	defer stop()
	rows := 0
	ownBefore, _ := processCPU(os.Getpid())
	for uint64(stream.end) < end {
		message, err := stream.next()
		if err != nil {
			r.t.Fatalf("read the slot by a bare loop: %v", err)
		}
		if len(message) > 0 && message[0] == 'I' {
			rows++
		}
	}
	took := time.Since(begun)
	ownAfter, _ := processCPU(os.Getpid())
	if rows != events {
		r.t.Fatalf("the slot holds %d rows, want %d", rows, events)
	}
	return floor{took: took, client: ownAfter - ownBefore,
		postgres: readPostgresCPU(r.t, r.pg.Server.PID()).minus(before).total}
}

// insertedID is the text of a row's first column in an Insert message of protocol 1 (Postgres's documentation, "Logical
// Replication Message Formats"): 'I', the relation, 'N', the number of columns, then per column kind, length, text.
func insertedID(message []byte) []byte {
	const first = 1 + 4 + 1 + 2
	size := binary.BigEndian.Uint32(message[first+1:])
	return message[first+5 : first+5+int(size)]
}
