package check

import "slices"

// managed is a Postgres that a service operates. Tested in cmd/cdc-relay, on a plain Postgres that has its role: more
// cannot be tried without the service.
type managed struct {
	role     string // that the service makes, and nobody else
	name     string
	walLevel string // how it is set
	stream   string // what lets a role stream; %s is the role
}

// noALTER is the advice for a setting that ALTER SYSTEM cannot change there.
const noALTER = "set it among the parameters of %s, if it offers that; otherwise alert on cdc_slot_retained_wal_bytes"

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
		"make the role %s in the console, by the CLI or the API: Neon gives REPLICATION to no role made by SQL"},
	{"supabase_admin", "Supabase", "its default", "ALTER ROLE %s WITH REPLICATION; as postgres"},
}

// service finds out which service operates the server: by the first role of its own. It is no check of its own, and
// what it says only words the others.
func (e *postgresExam) service() error {
	var roles []string
	for _, s := range services {
		roles = append(roles, s.role)
	}
	var there []string
	if err := e.row("SELECT ARRAY(SELECT rolname::text FROM pg_roles WHERE rolname = ANY($1))", []any{roles},
		&there); err != nil {
		return err
	}
	for _, s := range services {
		if slices.Contains(there, s.role) {
			e.managed = s
			e.add(OK, "service", "the role "+s.role+" says "+s.name+"; its own settings: docs/cloud/postgres.md", "")
			return nil
		}
	}
	return nil
}
