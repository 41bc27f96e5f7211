package harness

import (
	_ "embed"
	"testing"
)

// traps creates objects that a role with CREATE on a schema can leave for others to run.
//
//go:embed traps.sql
var traps string

// SetTraps fills the schema public with a twin of nearly every function and operator of Postgres's catalog: one with
// the same types, which is found where public comes before pg_catalog in a search_path, and some with types that are
// more exact for what a statement has than the catalog's any, text or oid, which are found wherever public is in the
// path. Each notes in public.loot who ran it.
func (p *PG) SetTraps(t testing.TB) {
	t.Helper()
	p.Exec(t, traps)
}

// Caught lists what a role ran of it, empty for nothing.
func (p *PG) Caught(t testing.TB, role string) string {
	t.Helper()
	return p.Query(t, `SELECT what FROM (SELECT min(what) AS what FROM public.loot WHERE who OPERATOR(pg_catalog.=) '`+
		role+`'::text) l WHERE what IS NOT NULL`)
}
