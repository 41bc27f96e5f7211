package login

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// wantsPrimary is target_session_attrs as a URL or key=value pairs have it.
var wantsPrimary = regexp.MustCompile(`target_session_attrs\s*=\s*'?(?:read-write|primary)\b`)

// OnPrimary has a connection whose text, a URL or key=value pairs, asks for a server that can be written to look for
// one that is not a standby. The driver's own check takes a primary for one where transactions are read-only by default
// (default_transaction_read_only), and asks in the role's search_path.
func OnPrimary(conf *pgconn.Config, text string) {
	fromEnvironment := "target_session_attrs=" + os.Getenv("PGTARGETSESSIONATTRS")
	if conf.ValidateConnect != nil && (wantsPrimary.MatchString(text) ||
		!strings.Contains(text, "target_session_attrs") && wantsPrimary.MatchString(fromEnvironment)) {
		conf.ValidateConnect = Primary
	}
}

// Primary refuses a standby, so that the next host is tried.
func Primary(ctx context.Context, conn *pgconn.PgConn) error {
	results, err := conn.Exec(ctx, "SELECT pg_catalog.pg_is_in_recovery()").ReadAll()
	if err != nil {
		return fmt.Errorf("ask whether the server is a standby: %w", err)
	}
	if len(results) == 1 && len(results[0].Rows) == 1 && string(results[0].Rows[0][0]) == "t" {
		return errors.New("the server is read-only, a standby")
	}
	return nil
}
