package harness

import "testing"

// A crash may come between the phases of a commit. Break it catches: a transaction left prepared, whose locks stop the
// load forever. Seen to fail with nothing committed, and with what other writers prepared.
func TestWriterCommitsWhatACrashLeftPrepared(t *testing.T) {
	p := Postgres(t)
	w := newWriter(&Load{pg: p, name: Unique(t, "load")}, 3)
	other := newWriter(w.load, 4)
	p.Exec(t, "CREATE TABLE t (n int)")
	p.Exec(t, "BEGIN; INSERT INTO t VALUES (1); PREPARE TRANSACTION "+quote(w.gid(7)))
	p.Exec(t, "BEGIN; INSERT INTO t VALUES (2); PREPARE TRANSACTION "+quote(other.gid(7)))
	if err := w.reconnect(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer w.disconnect()
	if got, want := p.Query(t, "SELECT string_agg(n::text, ',') FROM t"), "1"; got != want {
		t.Errorf("committed rows: got %q, want the writer's own %q", got, want)
	}
}
