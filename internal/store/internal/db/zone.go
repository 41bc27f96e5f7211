package db

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	zoned, zoneless = "timestamp with time zone", "timestamp without time zone"
	utc             = "UTC"
)

// zoneSQL is the zone of the configuration or the database's, as Postgres spells it. A role's own setting does not
// count where the database has one: the relay's role is not the application's. It leaves the transaction's zone at UTC.
const zoneSQL = `SELECT set_config('timezone', coalesce(NULLIF($1, ''),
 (SELECT substr(s, strpos(s, '=') + 1) FROM pg_db_role_setting d JOIN pg_database b ON b.oid = d.setdatabase,
  unnest(d.setconfig) s WHERE b.datname = current_database() AND d.setrole = 0 AND lower(s) LIKE 'timezone=%'),
 (SELECT reset_val FROM pg_settings WHERE name = 'TimeZone')), true), set_config('timezone', 'UTC', true)`

// readZone finds the zone of the table's times that have none. One that this program does not know is refused: the
// stream gives these times as they stand in the row, and they would be read wrongly.
func (s *DB) readZone(ctx context.Context, tx pgx.Tx, o *Table, columns []column) error {
	var found, created bool
	for _, c := range columns {
		found = found || c.base == zoneless
		created = created || c.base == zoneless && c.name == s.Config.Columns.CreatedAt
	}
	if !found {
		return nil
	}
	var pinned string
	if err := tx.QueryRow(ctx, zoneSQL, s.Config.TimeZone).Scan(&o.Zone, &pinned); err != nil {
		return fmt.Errorf("read the time zone of its columns of type timestamp: %w", err)
	}
	zone, err := time.LoadLocation(o.Zone)
	if err != nil {
		return fmt.Errorf("its columns of type timestamp have no time zone, and the database's is %q, which is not in the "+
			"IANA time zone database: set outbox.time_zone to its name there", o.Zone)
	}
	if created && zone != time.UTC && zone.String() != "Etc/UTC" {
		o.CreatedZone = o.Zone
	}
	return nil
}

// Created is the created_at of the row o, which has the text that the stream's is made to have: in UTC.
func (s *DB) Created(o *Table) string {
	column := "o." + Quote(s.Config.Columns.CreatedAt)
	if o.CreatedZone == "" {
		return column
	}
	return "((" + column + " AT TIME ZONE " + Literal(o.CreatedZone) + ") AT TIME ZONE '" + utc + "')"
}

// AsCreated is a time with time zone as what it is to be compared with in created_at.
func (o *Table) AsCreated(instant string) string {
	switch {
	case o.CreatedZoned:
		return instant
	case o.CreatedZone == "":
		return "(" + instant + " AT TIME ZONE '" + utc + "')"
	}
	return "(" + instant + " AT TIME ZONE " + Literal(o.CreatedZone) + ")"
}
