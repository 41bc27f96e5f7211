package table

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/store/internal/db"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/record"
)

// Sources are the numbers that this table has, under any slot: records and journal rows of all of them are of its rows.
func (s *Reader) Sources(ctx context.Context) ([]int32, error) {
	o, err := s.db.Table(ctx)
	var sources []int32
	if err == nil {
		err = s.db.Tx(ctx, db.Reading, func(tx pgx.Tx) (err error) {
			sources, err = s.db.Sources(ctx, tx, o)
			return err
		})
	}
	if err != nil {
		return nil, fmt.Errorf("read the table's sources: %w", err)
	}
	return sources, nil
}

// auditRowsSQL leaves the choice of the join to Postgres: index probes for a few rows, a hash for a whole table. A hash
// needs more memory than the usual setting allows, or it is written to disk many times over.
//
// In the inner SELECT published_when and order_by may name columns without their table. A row that uses the id of a
// journaled event again is not that event.
const auditRowsSQL = `SELECT {id_text}, {payload}, o.cdc_relay_position, r.event_id IS NOT NULL,
 p.event_id IS NOT NULL, d.original_id IS NOT NULL, o.cdc_relay_published,
 CASE WHEN r."offset" >= 0 THEN r.topic END, r.partition, r."offset", r.published_at, {made}{columns}
FROM (SELECT o.*, o.xmin, {position} AS cdc_relay_position, {published} AS cdc_relay_published
 FROM {outbox} o WHERE {ours} AND {range}) o
LEFT JOIN {journal} r ON r.source = ANY ($1) AND r.event_id = {oid} AND NOT {of_another}
LEFT JOIN {parked} p ON p.source = ANY ($1) AND p.event_id = {oid}
LEFT JOIN {dlq} d ON d.source = ANY ($1) AND d.original_id = {oid}`

const auditMemory = `SELECT set_config('work_mem', '64MB', true)`

// AuditRows reads the rows of the range from one snapshot, in no order. A row that several sources know comes several
// times. What it hands out is valid during the call only.
func (s *Reader) AuditRows(ctx context.Context, within record.AuditRange, columns []string,
	each func(*record.AuditRow) error) error {
	o, err := s.db.OwnTable(ctx)
	if err != nil {
		return err
	}
	if err := db.CheckIDs(o, within.IDs()); err != nil {
		return err
	}
	sources, err := s.Sources(ctx)
	if err != nil {
		return err
	}
	text, args := s.auditRows(o, within, columns, sources)
	err = s.db.Tx(ctx, db.Scanning, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, auditMemory); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, text, args...)
		if err != nil {
			return err
		}
		r := record.AuditRow{Columns: make([]*string, len(columns))}
		var topic *string
		var partition *int32
		var offset *int64
		var at *time.Time
		into := []any{&r.ID, &r.Payload, &r.Order, &r.Journaled, &r.Parked, &r.Dead, &r.Published, &topic, &partition,
			&offset, &at, &r.Made}
		for i := range r.Columns {
			into = append(into, &r.Columns[i])
		}
		_, err = pgx.ForEachRow(rows, into, func() error {
			r.Topic, r.Partition, r.Offset, r.JournaledAt = "", 0, 0, time.Time{}
			if at != nil {
				r.JournaledAt = *at
			}
			if topic != nil {
				r.Topic, r.Partition, r.Offset = *topic, *partition, *offset
			}
			return each(&r)
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("read the outbox: %w", err)
	}
	return nil
}

func (s *Reader) auditRows(o *db.Table, within record.AuditRange, columns []string,
	sources []int32) (text string, args []any) {
	c := s.db.Config.Columns
	// A dead letter that someone edited sends what is in it.
	payload := "CASE WHEN d.edited_at IS NULL THEN o." + db.Quote(c.Payload) + " ELSE d.payload END"
	if o.PayloadType != "bytea" {
		payload = db.ToBytes("(" + payload + ")::text")
	}
	args = []any{sources}
	conditions := []string{"true"}
	where := func(condition string, value any) {
		args = append(args, value)
		conditions = append(conditions, fmt.Sprintf(condition, len(args)))
	}
	if within.FromID != "" {
		where("o."+db.Quote(c.ID)+" >= $%d::text::"+o.IDType, within.FromID)
	}
	if within.ToID != "" {
		where("o."+db.Quote(c.ID)+" <= $%d::text::"+o.IDType, within.ToID)
	}
	if within.Since != nil {
		where("o."+db.Quote(c.CreatedAt)+" >= "+o.AsCreated("$%d::timestamptz"), *within.Since)
	}
	if within.Until != nil {
		where("o."+db.Quote(c.CreatedAt)+" < "+o.AsCreated("$%d::timestamptz"), *within.Until)
	}
	list := ""
	for _, name := range columns {
		if name == c.CreatedAt {
			created := "{created}"
			if !o.CreatedZoned {
				created = "({created} AT TIME ZONE 'UTC')" // it is read in another session
			}
			list += ", " + created + "::text"
			continue
		}
		list += ", o." + db.Quote(name) + "::text"
	}
	position := o.Position
	if position == "" {
		position = "row_number() OVER (ORDER BY " + o.OrderBy + "\n)"
	}
	made := "NULL::bigint"
	if c.CreatedAt != "" {
		made = "CASE WHEN isfinite({created}) THEN (extract(epoch FROM {created}) * 1000000)::bigint END"
	}
	text = strings.NewReplacer("{made}", made, "{id_text}", "o."+db.Quote(c.ID)+"::text", "{payload}", payload,
		"{columns}", list, "{range}", strings.Join(conditions, " AND "), "{position}", position).Replace(auditRowsSQL)
	return s.db.SQL(o, text), args
}
