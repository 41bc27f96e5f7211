package install

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/access/login"
	"github.com/cdc-relay/cdc-relay/internal/store"
)

// RefusedError says what Postgres refused to a role, with the statements that give it what it lacks.
type RefusedError struct {
	Role       string
	Statements []string
	Cause      error
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("Postgres refused what init needs: %s\nThe role %s lacks privileges. Let a superuser, or who "+
		"owns it, "+
		"run\n  %s\nor have init run once by a role that has them: --postgres-url",
		store.Said(e.Cause), e.Role, strings.Join(e.Statements, "\n  "))
}

func (e *RefusedError) Unwrap() error { return e.Cause }

// Explain adds to an error of Missing, All or ButSlot the statements that give the role what it lacks. Any other error
// is returned as it is.
func Explain(ctx context.Context, cfg config.Config, st *store.Store, err error) error {
	if !store.IsDenied(err) || login.Of(err) != nil {
		return err
	}
	if all, failed := st.EachTable(ctx); failed == nil {
		st = all[0]
	}
	role, statements, failed := st.InitLacks(ctx, cfg.Postgres.Publication)
	if failed != nil {
		return errors.Join(err, failed)
	}
	if len(statements) == 0 {
		if table, failed := st.Outbox(ctx); failed == nil {
			_, missing, failed := st.MissingGrants(ctx, table)
			if failed != nil {
				return errors.Join(err, failed)
			}
			for _, g := range missing {
				statements = append(statements, store.GrantSQL(g, role))
			}
		}
	}
	if len(statements) == 0 {
		return err
	}
	return &RefusedError{Role: role, Statements: statements, Cause: err}
}
