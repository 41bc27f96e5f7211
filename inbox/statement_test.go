package inbox

import "testing"

// Breaks it catches: a statement that would end a handler's transaction and is sent, and one that is refused for words
// in its text. Seen to fail with statements cut at each semicolon, and with ROLLBACK TO taken for a rollback.
func TestWhatAStatementDoesIsReadFromItsText(t *testing.T) {
	for sql, want := range map[string]sideEffect{
		"SELECT 1": plain, "": plain, ";": plain, "INSERT INTO t VALUES ('x; COMMIT')": plain,
		"SELECT $1; SELECT $2": plain, `SELECT "a;commit" FROM t`: plain, "SELECT e'\\'; commit'": plain,
		"SELECT $$;commit;$$": plain, "SELECT $a$;$$;commit$a$": plain, "-- x\nSELECT 1 -- ;commit": plain,
		"/* ; commit /* */ ; commit */ SELECT 1; SELECT 2": plain, "ROLLBACK TO SAVEPOINT a": plain,
		"rollback work to a": plain, "SAVEPOINT commit": plain, "commit_order": plain, "SET CONSTRAINTS ALL IMMEDIATE": plain,
		"PREPARE a AS SELECT 1": plain, "UPDATE t SET commit = 1": plain,
		"SET TRANSACTION ISOLATION LEVEL READ COMMITTED": plain,
		"COMMIT": ends, " \n\tcommit;": ends, "-- end\n COMMIT AND CHAIN": ends, "/* a */ END": ends, "ABORT": ends,
		"ROLLBACK": ends, "rollback and no chain": ends, "SELECT 1; COMMIT; BEGIN": ends, "SELECT ';'; ROLLBACK": ends,
		"PREPARE TRANSACTION 'a'": ends, "SELECT $1;commit": ends, "SELECT 'it''s'; commit": ends,
		"SET LOCAL lock_timeout = 1": setsLocal, "SET search_path = a": setsSession, "RESET ALL": setsSession,
		"SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY": setsSession, "SET ROLE a": setsSession,
		"SELECT set_config('a.b', '1', false)": setsSession, "SELECT 1; SET TimeZone = 'UTC'": setsSession,
	} {
		if got := inspect(sql); got != want {
			t.Errorf("%q: got %d, want %d", sql, got, want)
		}
	}
}

func FuzzEveryTextIsReadToItsEnd(f *testing.F) {
	for _, sql := range []string{"SELECT 1; COMMIT", "$a$ ; $a$;", "e'\\", "/*", "--", "$", `"`} {
		f.Add(sql)
	}
	f.Fuzz(func(_ *testing.T, sql string) { inspect(sql) })
}
