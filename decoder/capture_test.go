package decoder

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/cdc-relay/cdc-relay/test/embedded"
)

var update = flag.Bool("update", false, "capture the golden files again from a throw-away Postgres")

// endMark is the prefix of the logical message that ends a capture.
const endMark = "end of capture"

// captureAll writes the golden files: it plays each scenario on a real server and keeps what the server sends.
func captureAll(t *testing.T) {
	t.Helper()
	server, err := embedded.StartPostgres(t.Context(), embedded.PostgresConfig{Version: "15"})
	if err != nil {
		t.Fatalf("start Postgres: %v", err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Errorf("stop Postgres: %v", err)
		}
	})
	for i, s := range scenarios {
		g := capture(t, server, fmt.Sprintf("capture%d", i), s)
		if err := os.WriteFile(filepath.Join("testdata", s.name+".golden"), []byte(g.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// capture plays one scenario in a database of its own.
func capture(t *testing.T, server *embedded.Postgres, database string, s scenario) golden {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	admin := connect(ctx, t, server.URL("postgres"))
	execute(ctx, t, admin, "CREATE DATABASE "+database)

	sql := connect(ctx, t, server.URL(database))
	for _, statement := range s.setup {
		execute(ctx, t, sql, statement)
	}
	g := golden{name: s.name, config: Config{Columns: outboxColumns}}
	g.config.Columns.Extra = s.extra
	for _, table := range s.tables {
		var oid uint32
		if _, err := fmt.Sscan(execute(ctx, t, sql, fmt.Sprintf("SELECT '%s'::regclass::oid", table)), &oid); err != nil {
			t.Fatalf("OID of %s: %v", table, err)
		}
		g.config.Tables = append(g.config.Tables, oid)
	}
	execute(ctx, t, sql, s.publication)
	execute(ctx, t, sql, fmt.Sprintf("SELECT pg_create_logical_replication_slot('%s', 'pgoutput')", database))
	for _, step := range s.steps {
		execute(ctx, t, sql, step)
	}
	execute(ctx, t, sql, fmt.Sprintf("SELECT pg_logical_emit_message(true, '%s', '')", endMark))
	g.wire = receive(ctx, t, server.URL(database), database)
	g.want = describeAll(g)
	for i, want := range g.want {
		if strings.HasPrefix(want, "*decoder.") { // an error ends the connection
			g.wire, g.want = g.wire[:i+1], g.want[:i+1]
			break
		}
	}
	g.about = append(g.about, s.name+": "+s.about, "", execute(ctx, t, sql, "SHOW server_version"))
	for _, part := range [][]string{s.setup, {s.publication}, s.steps} {
		g.about = append(g.about, "")
		for _, statement := range part {
			g.about = append(g.about, strings.Split(statement, "\n")...)
		}
	}
	return g
}

// receive streams from the slot and returns all messages before the transaction of the end mark.
func receive(ctx context.Context, t *testing.T, url, slot string) [][]byte {
	t.Helper()
	conn := connect(ctx, t, url+"&replication=database&TimeZone=UTC&DateStyle=ISO&bytea_output=hex")
	err := pglogrepl.StartReplication(ctx, conn, slot, 0, pglogrepl.StartReplicationOptions{
		PluginArgs: []string{"proto_version '1'", "publication_names 'pub'", "messages 'true'"},
	})
	if err != nil {
		t.Fatalf("start replication: %v", err)
	}
	var messages [][]byte
	begin := 0
	for {
		received, err := conn.ReceiveMessage(ctx)
		if err != nil {
			t.Fatalf("receive: %v", err)
		}
		data, isCopy := received.(*pgproto3.CopyData)
		if !isCopy {
			t.Fatalf("receive: got %T", received)
		}
		if data.Data[0] != pglogrepl.XLogDataByteID {
			continue
		}
		wal, err := pglogrepl.ParseXLogData(data.Data[1:])
		if err != nil {
			t.Fatalf("parse XLogData: %v", err)
		}
		parsed, err := pglogrepl.Parse(wal.WALData)
		if err != nil {
			t.Fatalf("parse %x: %v", wal.WALData, err)
		}
		switch m := parsed.(type) {
		case *pglogrepl.BeginMessage:
			begin = len(messages)
		case *pglogrepl.LogicalDecodingMessage:
			if m.Prefix == endMark {
				return messages[:begin]
			}
		}
		messages = append(messages, append([]byte(nil), wal.WALData...))
	}
}

func connect(ctx context.Context, t *testing.T, url string) *pgconn.PgConn {
	t.Helper()
	conn, err := pgconn.Connect(ctx, url)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// execute runs statements, or a COPY whose data follow it after a line end, and returns the first value if there is
// one.
func execute(ctx context.Context, t *testing.T, conn *pgconn.PgConn, statement string) string {
	t.Helper()
	if command, data, _ := strings.Cut(statement, "\n"); strings.HasPrefix(command, "COPY ") {
		if _, err := conn.CopyFrom(ctx, strings.NewReader(data+"\n"), command); err != nil {
			t.Fatalf("%s: %v", command, err)
		}
		return ""
	}
	results, err := conn.Exec(ctx, statement).ReadAll()
	if err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	if len(results) == 0 || len(results[0].Rows) == 0 {
		return ""
	}
	return string(results[0].Rows[0][0])
}
