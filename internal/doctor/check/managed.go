package check

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/access/login"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/relay"
)

// managed is a Postgres that a service operates. Tested in cmd/cdc-relay, on a plain Postgres that has its role: more
// cannot be tried without the service.
type managed struct {
	role     string // that the service makes, and no one else
	name     string
	walLevel string // how it is set
	stream   string // what lets a role stream; %s is the role
}

// noALTER is the advice for a setting that ALTER SYSTEM cannot change there.
const noALTER = "set it among the parameters of %s, if it offers that"

// services are in the order of the page docs/cloud/postgres.md.
var services = []managed{
	{"rds_superuser", "Amazon RDS or Aurora",
		"rds.logical_replication = 1 in a parameter group of your own (Aurora: of the cluster), then restart",
		"GRANT rds_replication TO %s; as a member of rds_superuser"},
	{"cloudsqlsuperuser", "Google Cloud SQL", "the flag cloudsql.logical_decoding = on, then restart",
		"ALTER USER %s WITH REPLICATION; as a member of cloudsqlsuperuser"},
	{"azure_pg_admin", "Azure Database for PostgreSQL", "the parameter wal_level = logical, then restart",
		"ALTER ROLE %s WITH REPLICATION; as the administrator"},
	{"neon_superuser", "Neon", "logical replication in the project's settings",
		"create the role %s in the console, CLI or API: Neon does not give REPLICATION to roles created by SQL"},
	{"supabase_admin", "Supabase", "its default", "ALTER ROLE %s WITH REPLICATION; as postgres"},
	{"crunchy_superuser", "Crunchy Bridge", "its default", "ALTER ROLE %s WITH REPLICATION; as postgres"},
}

// serviceOf is the service that operates the server, by the first role of its own; the zero value for no known one.
func serviceOf(ctx context.Context, conn *pgx.Conn) (managed, error) {
	var roles, there []string
	for _, s := range services {
		roles = append(roles, s.role)
	}
	const look = "SELECT ARRAY(SELECT rolname::text FROM pg_roles WHERE rolname = ANY($1))"
	err := store.ReadOnly(ctx, conn, func(tx pgx.Tx) error { return tx.QueryRow(ctx, look, roles).Scan(&there) })
	if err != nil {
		return managed{}, fmt.Errorf("look for the roles of managed services: %w", err)
	}
	for _, s := range services {
		if slices.Contains(there, s.role) {
			return s, nil
		}
	}
	return managed{}, nil
}

// service is no check of its own: what it says only words the others.
func (e *postgresExam) service() (err error) {
	if e.managed, err = serviceOf(e.ctx, e.conn); err == nil && e.managed.name != "" {
		e.add(OK, "service", "the role "+e.managed.role+" says "+e.managed.name+
			"; its own settings: docs/cloud/postgres.md", "")
	}
	return err
}

// grant returns the statement that lets the role stream.
func (s managed) grant(role string) string {
	return fmt.Sprintf(s.stream, pgx.Identifier{role}.Sanitize())
}

// OfService is an error of init on the server of postgres.url, in the words of the service that operates it: its way to
// let a role stream, and to raise wal_level, in place of plain Postgres's. streams is the role that init was to make
// with the right to stream, "" for none. Any other error, and one on a server of no known service, is returned as is.
func OfService(ctx context.Context, cfg config.Config, streams string, err error) error {
	refused, halted := login.Of(err), (*relay.Halt)(nil)
	errors.As(err, &halted)
	barred := refused != nil && refused.NoReplication != ""
	denied := streams != "" && store.IsDenied(err)
	if !barred && !denied && (halted == nil || halted.Code != relay.HaltSetup) {
		return err
	}
	s, level, failed := lookAtService(ctx, cfg)
	switch {
	case failed != nil || s.name == "": // what is known already is the better error
		return err
	case denied && !barred:
		return fmt.Errorf("%w\nThe role %s says %s. There a role gets the right to stream so: %s. Without that right, the "+
			"two roles and their grants are what cdc-relay init --roles --dry-run prints", err, s.role, s.name, s.grant(streams))
	case barred:
		r := *refused
		r.Remedy = s.grant(r.NoReplication) + " (the role " + s.role + " says " + s.name + ")"
		if halted == nil {
			r.Reason = err.Error()
			return &r
		}
		h := *halted
		h.Remedy, h.Cause = r.Remedy, &r
		return &h
	case level != "logical":
		h := *halted
		h.Remedy = s.walLevel + " (the role " + s.role + " says " + s.name + "); then run init again"
		return &h
	}
	return err
}

func lookAtService(ctx context.Context, cfg config.Config) (s managed, walLevel string, err error) {
	conn, err := store.Connect(ctx, relay.StoreConfig(cfg))
	if err != nil {
		return s, "", err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	err = store.ReadOnly(ctx, conn, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, "SELECT current_setting('wal_level')").Scan(&walLevel)
	})
	if err != nil {
		return s, "", fmt.Errorf("ask for wal_level: %w", err)
	}
	s, err = serviceOf(ctx, conn)
	return s, walLevel, err
}
