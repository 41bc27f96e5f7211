//go:build linux

package replication

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// Break caught: a server whose lc_messages is not English says in other words that the publication is missing, and that
// is taken for a broken connection, or from PostgreSQL 18 for a notice: no halt, and no new slot once it is fixed.
// Seen to fail with the English texts looked for alone.
func TestMissingPublicationIsToldInAnyLanguage(t *testing.T) {
	f := newFixture(t)
	_, err := f.conn.Exec(t.Context(), "SELECT pg_get_publication_tables('nope')") // looks for it as the stream does
	if pg, is := errors.AsType[*pgconn.PgError](err); !is || pg.Routine != missingPublication {
		t.Errorf("this server: got %+v, want an error of the routine %s", err, missingPublication)
	}
	for _, said := range []interface{ Encode([]byte) ([]byte, error) }{
		&pgproto3.ErrorResponse{Severity: "FEHLER", Code: "42704", Message: "Publikation »pub« existiert nicht",
			Routine: "get_publication_oid"},
		&pgproto3.NoticeResponse{Severity: "WARNUNG", Code: "55000", Message: "Laden der Publikation »pub« übersprungen",
			Routine: "LoadPublications"},
	} {
		message, err := said.Encode(nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := new(Session).take(message[0], message[5:]); !isA[*PublicationMissingError](err) {
			t.Errorf("%s: got %v, want a PublicationMissingError", message, err)
		}
	}
	other := &pgproto3.ErrorResponse{Severity: "FEHLER", Code: "42704", Message: "Typ »t« existiert nicht",
		Routine: "typenameType"}
	message, err := other.Encode(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := new(Session).take(message[0], message[5:]); err == nil || isA[*PublicationMissingError](err) {
		t.Errorf("another object: got %v, want an error that is not about the publication", err)
	}
}
