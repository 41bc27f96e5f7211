package main

import (
	"cmp"
	"strings"
	"testing"
)

// Breaks it catches: a condition or a lock that nothing drops, or one that is dropped with more than itself, which is
// no SQL any more; a table of a GRANT taken for a condition. Seen to fail with alternatives not split, with the end of
// a CASE taken for that of the conditions, with SKIP LOCKED left out, and with every ON taken for that of a join.
func TestEachConditionAndEachLockIsFoundByItself(t *testing.T) {
	for _, row := range []struct{ text, want string }{
		{`SELECT a FROM t WHERE x = $1`, `x = $1 -> true`},
		{`SELECT a FROM t WHERE x = $1 AND NOT y AND z < ALL (SELECT 1 FROM u WHERE v) ORDER BY a LIMIT $2`,
			`x = $1 -> true; NOT y -> true; z < ALL (SELECT 1 FROM u WHERE v) -> true; v -> true; ORDER BY a -> ~ DESC; ` +
				`LIMIT $2 -> no bound`},
		{`UPDATE t SET x = 1 WHERE (a OR b AND c) AND d RETURNING 1`,
			`(a OR b AND c) -> true; a -> false; b AND c -> false; b -> true; c -> true; d -> true`},
		{`SELECT 1 FROM t o WHERE o.x AND {said} FOR UPDATE OF o SKIP LOCKED`,
			`o.x -> true; {said} -> true; FOR UPDATE OF o SKIP LOCKED -> ; SKIP LOCKED -> `},
		{`SELECT 1 FROM t WHERE a FOR NO KEY UPDATE`, `a -> true; FOR NO KEY UPDATE -> `},
		{`WITH f AS (SELECT 1 FROM t WHERE a FOR SHARE), g AS (DELETE FROM u WHERE b) SELECT 1`,
			`a -> true; FOR SHARE -> ; b -> true`},
		{`SELECT 1 FROM a JOIN b ON a.x = b.x AND a.y LEFT JOIN c ON c.z WHERE d`,
			`a.x = b.x -> true; a.y -> true; c.z -> true; d -> true`},
		{`INSERT INTO t VALUES (1) ON CONFLICT (a) DO NOTHING`, `ON CONFLICT (a) DO NOTHING -> `},
		{`d.a = $1 AND CASE WHEN b AND c THEN d ELSE e END AND f`,
			`d.a = $1 -> true; CASE WHEN b AND c THEN d ELSE e END -> true; f -> true`},
		{` AND a <= b AND c`, `a <= b -> true; c -> true`},
		{`(a < b OR c >= d)`, `(a < b OR c >= d) -> true; a < b -> false; c >= d -> false`},
		{`SELECT a FROM t WHERE x AND ÿ`, `x -> true; ÿ -> true`},
		{`SELECT a FROM t WHERE xÿ`, `x -> true`},
		{`SELECT a FROM t WHERE x = $1::text::ÿÿ`, `x = $1::text::ÿ -> true`},
		{`SELECT count(*) FILTER (WHERE a = 'b AND c') FROM t`, `a = 'b AND c' -> true`},
		{`source, event_id, topic`, ``},
		{`INSERT INTO t AS a VALUES ($1) ON CONFLICT (b, c) WHERE d IS NULL DO UPDATE SET b = $1 WHERE a.c RETURNING 1`,
			`ON CONFLICT (b, c) WHERE d IS NULL DO UPDATE SET b = $1 WHERE a.c -> ; a.c -> true`},
		{`WITH a AS (INSERT INTO t SELECT 1 ON CONFLICT DO NOTHING) SELECT 2 FROM a OFFSET 1`,
			`ON CONFLICT DO NOTHING -> ; OFFSET 1 -> no bound`},
		{`SELECT DISTINCT ON (a) 1 FROM t WHERE b ON CONFLICT DO NOTHINGÿ`, `b -> true; ON CONFLICT DO NOTHING -> `},
		{`SELECT ON ÿ`, ``},
		{`SELECT row_number() OVER (ORDER BY f(a, b), c DESC NULLS LAST ROWS UNBOUNDED PRECEDING) FROM t LIMIT least($1, 2)`,
			`ORDER BY f(a, b) -> ~ DESC; ORDER BY c DESC -> ASC; LIMIT least -> no bound`},
		{`SELECT 1 FROM t ORDER BY {order} LIMIT 1 FOR UPDATE NOWAIT`,
			`ORDER BY {order} -> random(); LIMIT 1 -> no bound; FOR UPDATE NOWAIT -> ; NOWAIT -> `},
		{`SELECT 1 FROM t JOIN u ON true WHERE a -- not AND b
 AND c = ÿ`, `a -> true; c = ÿ -> true`},
	} {
		var got []string
		for _, c := range clauses(row.text, func(r rune) bool { return r == 'ÿ' }) {
			instead := map[string]string{always: "true", never: "false", boundless: "no bound"}[c.instead]
			got = append(got, cmp.Or(c.name, row.text[c.from:c.to])+" -> "+cmp.Or(instead, c.instead))
		}
		if got := strings.Join(got, "; "); got != row.want {
			t.Errorf("%s\n got %s\nwant %s", row.text, got, row.want)
		}
	}
}
