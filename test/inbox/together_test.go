package inbox

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/inbox"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// claims draws lists of ids as messages may have them, and hands each to two consumers: to one together, to the other
// one by one.
type claims struct {
	conn *pgx.Conn
	rng  *rand.Rand
	of   int // so many ids the list is drawn from: with few, some were claimed before
}

func uuid(n int) string { return fmt.Sprintf("019aa7e4-0000-7000-8000-%012x", n) }

// id is that of a uuid in one of its spellings, or of one that looks like it, or any other.
func (c *claims) id() string {
	n := c.rng.IntN(c.of)
	switch c.rng.IntN(12) {
	case 0:
		return strings.ToUpper(uuid(n))
	case 1:
		return []string{uuid(n) + " " + uuid(n+1), uuid(n) + "\n", " " + uuid(n), uuid(n)[1:], "x" + uuid(n)[1:],
			strings.Repeat("é", 36), "NULL", `{"a",'b\}`}[c.rng.IntN(8)]
	case 2:
		return strconv.Itoa(n)
	default:
		return uuid(n)
	}
}

// list draws messages. Half of the lists have only uuids, or what consists of them, and some an id twice.
func (c *claims) list() (ids, sources []string, keys [][]byte) {
	plain := c.rng.IntN(2) == 0
	c.of = []int{3000, 1_000_000_000}[c.rng.IntN(2)]
	for range 1 + c.rng.IntN(40) {
		id := c.id()
		if plain {
			id = uuid(c.rng.IntN(c.of))
		}
		key := fmt.Appendf(nil, "k%d", c.rng.IntN(12))
		if c.rng.IntN(10) == 0 {
			key = nil
		}
		ids, keys = append(ids, id), append(keys, key)
		sources = append(sources, fmt.Sprintf("s%d", c.rng.IntN(3)))
	}
	if plain && c.rng.IntN(8) == 0 {
		ids[0] = uuid(c.rng.IntN(c.of)) + " " + uuid(c.rng.IntN(c.of))
	}
	return ids, sources, keys
}

func (c *claims) compare(t *testing.T) {
	t.Helper()
	ids, sources, keys := c.list()
	both := func(sql string, args ...any) {
		for _, consumer := range []string{"together", "one by one"} {
			if _, err := c.conn.Exec(t.Context(), sql, slices.Insert(args, 0, any(consumer))...); err != nil {
				t.Fatalf("%s %q: %v", sql, args, err)
			}
		}
	}
	if c.rng.IntN(3) == 0 { // an event that others of its key wait for, of the list or not
		id := []string{ids[0], uuid(1_000_000_000 + c.rng.IntN(1_000_000_000))}[c.rng.IntN(2)]
		both("SELECT inbox_park($1, $2, 'orders', 0, 1, $3, NULL, source_name => $4)", id, keys[0], sources[0])
		defer both("SELECT inbox_done($1, $2, $3)", id, sources[0])
	}
	var got, want []int
	err := c.conn.QueryRow(t.Context(), `SELECT inbox_claim_together('together', $1::text[],
		array_fill('orders'::text, ARRAY[cardinality($1)]), array_fill(0, ARRAY[cardinality($1)]), $2, $3)`,
		ids, keys, sources).Scan(&got)
	if err != nil {
		t.Fatalf("claim %q: %v", ids, err)
	}
	for i := range ids {
		var outcome string
		if err := c.conn.QueryRow(t.Context(), "SELECT inbox_claim('one by one', $1, 'orders', 0, $2, $3)",
			ids[i], keys[i], sources[i]).Scan(&outcome); err != nil {
			t.Fatalf("claim %q: %v", ids[i], err)
		}
		if outcome == "new" {
			want = append(want, i+1)
		}
	}
	if !slices.Equal(got, want) {
		t.Fatalf("claim %q of %q with keys %q together: got %v, want %v, as one by one", ids, sources, keys, got, want)
	}
}

// same compares the rows that both consumers have.
func (c *claims) same(t *testing.T, pg *harness.PG) {
	t.Helper()
	const differ = `SELECT count(*) FROM (SELECT source, event_id, state FROM inbox_event WHERE consumer = 1) a
		FULL JOIN (SELECT source, event_id, state FROM inbox_event WHERE consumer = 2) b USING (source, event_id, state)
		WHERE a IS NULL OR b IS NULL`
	if got := pg.Query(t, differ); got != "0" {
		t.Errorf("rows that only one consumer has: got %s, want 0", got)
	}
	if got := pg.Query(t, "SELECT count(*) > 1000 FROM inbox_event WHERE consumer = 1"); got != "true" {
		t.Errorf("fewer than 1,000 events were claimed")
	}
}

// released creates the tables as a version with so many steps does.
func released(t *testing.T, pg *harness.PG, steps int) {
	t.Helper()
	files, err := filepath.Glob("../../inbox/internal/ledger/*.sql")
	if err != nil || len(files) <= steps {
		t.Fatalf("steps: got %q, %v, want more than %d", files, err, steps)
	}
	for _, name := range files[:steps] {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		pg.Exec(t, strings.ReplaceAll(string(text), "{{.Schema}}", "public"))
	}
	pg.Exec(t, fmt.Sprintf("CREATE TABLE inbox_version (version integer NOT NULL); INSERT INTO inbox_version VALUES (%d)",
		steps))
}

// Claims of a list have the outcomes and the rows of claims one by one, whatever the ids: in tables of the version
// before, which are upgraded beneath a session that has called the functions. Seen to fail with the length of the ids
// not looked at, so that two uuids in one id count as two, with letters left as they are, with an id that is twice in a
// list won twice, and with parked keys not looked at where all ids are new.
func TestClaimsTogetherAreThoseOneByOne(t *testing.T) {
	t.Parallel()
	pg := harness.Postgres(t)
	released(t, pg, 10)
	pg.Exec(t, "SELECT inbox_register('together'), inbox_register('one by one')")
	c := &claims{conn: pg.Connect(t), rng: rand.New(rand.NewPCG(3, 4))}
	for range 100 {
		c.compare(t)
	}
	before := pg.Query(t, "SELECT 'inbox_claim_together'::regproc::oid")
	if err := inbox.Migrate(t.Context(), newPool(t, pg.URL, 2), "public"); err != nil {
		t.Fatal(err)
	}
	if got := pg.Query(t, "SELECT version > 10 FROM inbox_version"); got != "true" {
		t.Errorf("the version after the upgrade: got %s, want more than 10", pg.Query(t, "TABLE inbox_version"))
	}
	if got := pg.Query(t, "SELECT 'inbox_claim_together'::regproc::oid"); got != before { // with the grants on it
		t.Errorf("the function is another one after the upgrade: got oid %s, want %s", got, before)
	}
	for range 200 {
		c.compare(t)
	}
	c.same(t, pg)
	for _, ids := range [][]string{{uuid(1), ""}, {""}} {
		if _, err := c.conn.Exec(t.Context(), `SELECT inbox_claim_together('together', $1, '{a,a}', '{0,0}', '{NULL,NULL}',
			'{s,s}')`, ids); err == nil || !strings.Contains(err.Error(), "the id of the event is empty") {
			t.Errorf("claim %q: got %v, want that an id is empty", ids, err)
		}
	}
}
