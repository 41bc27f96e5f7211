package store

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// AuditRange bounds the rows of an audit; nil and empty mean no bound.
type AuditRange struct {
	FromID, ToID string     // of the outbox's ids, both inclusive
	Since, Until *time.Time // of created_at, since inclusive
}

// Sources are the numbers that this table has, under any slot: records and journal rows of all of them are of its rows.
func (s *Store) Sources(ctx context.Context) ([]int32, error) {
	o, err := s.knownOutbox(ctx)
	var sources []int32
	if err == nil {
		err = s.tx(ctx, reading, func(tx pgx.Tx) error {
			rows, err := tx.Query(ctx, s.names.sql(`SELECT source FROM {source} WHERE table_oid = $1 ORDER BY source`), o.OID)
			if err == nil {
				sources, err = pgx.CollectRows(rows, pgx.RowTo[int32])
			}
			return err
		})
	}
	if err != nil {
		return nil, fmt.Errorf("read the table's sources: %w", err)
	}
	return sources, nil
}

// AuditRow is a row of the outbox with what the relay's tables say of it.
type AuditRow struct {
	ID                      string
	Payload                 []byte // as the stream carries it; nil = SQL NULL
	Order                   int64  // its place in the order of outbox.order_by; equal numbers say nothing of the order among them
	Journaled, Parked, Dead bool   // more than one: the first holds
	Published               bool   // by the row itself
	Topic                   string // where the journal has it; empty when it does not say
	Partition               int32
	Offset                  int64
	Columns                 []*string // those asked for
}

// auditRowsSQL leaves the choice of the join to Postgres: index probes for a few rows, a hash for a whole table. A hash needs more
// memory than the usual setting allows, or it is written to disk many times over.
//
// The inner SELECT is where published_when and order_by may name columns without saying of which table.
const auditRowsSQL = `SELECT {id_text}, {payload}, o.cdc_relay_position, j.event_id IS NOT NULL, p.event_id IS NOT NULL, d.original_id IS NOT NULL, o.cdc_relay_published,
 CASE WHEN j."offset" >= 0 THEN j.topic END, j.partition, j."offset"{columns}
FROM (SELECT o.*, {position} AS cdc_relay_position, {published} AS cdc_relay_published FROM {outbox} o WHERE {range}) o
LEFT JOIN {journal} j ON j.source = ANY ($1) AND j.event_id = {oid}
LEFT JOIN {parked} p ON p.source = ANY ($1) AND p.event_id = {oid}
LEFT JOIN {dlq} d ON d.source = ANY ($1) AND d.original_id = {oid}`

const auditMemory = `SELECT set_config('work_mem', '64MB', true)`

// ids are those that are given.
func (r AuditRange) ids() []string {
	return slices.DeleteFunc([]string{r.FromID, r.ToID}, func(id string) bool { return id == "" })
}

// AuditRows reads the rows of the range from one snapshot, in no order. A row that several sources know comes several times.
// What it hands out is valid during the call only.
func (s *Store) AuditRows(ctx context.Context, within AuditRange, columns []string, each func(*AuditRow) error) error {
	o, err := s.knownOutbox(ctx)
	if err != nil {
		return err
	}
	if err := checkIDs(o, within.ids()); err != nil {
		return err
	}
	sources, err := s.Sources(ctx)
	if err != nil {
		return err
	}
	text, args := s.auditRows(o, within, columns, sources)
	err = s.tx(ctx, scanning, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, auditMemory); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, text, args...)
		if err != nil {
			return err
		}
		r := AuditRow{Columns: make([]*string, len(columns))}
		var topic *string
		var partition *int32
		var offset *int64
		into := []any{&r.ID, &r.Payload, &r.Order, &r.Journaled, &r.Parked, &r.Dead, &r.Published, &topic, &partition, &offset}
		for i := range r.Columns {
			into = append(into, &r.Columns[i])
		}
		_, err = pgx.ForEachRow(rows, into, func() error {
			r.Topic, r.Partition, r.Offset = "", 0, 0
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

func (s *Store) auditRows(o *Outbox, within AuditRange, columns []string, sources []int32) (text string, args []any) {
	c := s.config.Columns
	payload := "o." + quote(c.Payload)
	if o.PayloadType != "bytea" {
		payload = "convert_to(" + payload + "::text, 'UTF8')"
	}
	args = []any{sources}
	conditions := []string{"true"}
	where := func(condition string, value any) {
		args = append(args, value)
		conditions = append(conditions, fmt.Sprintf(condition, len(args)))
	}
	if within.FromID != "" {
		where("o."+quote(c.ID)+" >= $%d::text::"+o.IDType, within.FromID)
	}
	if within.ToID != "" {
		where("o."+quote(c.ID)+" <= $%d::text::"+o.IDType, within.ToID)
	}
	if within.Since != nil {
		where("o."+quote(c.CreatedAt)+" >= $%d", *within.Since)
	}
	if within.Until != nil {
		where("o."+quote(c.CreatedAt)+" < $%d", *within.Until)
	}
	list := ""
	for _, name := range columns {
		list += ", o." + quote(name) + "::text"
	}
	position := o.position
	if position == "" {
		position = "row_number() OVER (ORDER BY " + o.OrderBy + "\n)"
	}
	text = strings.NewReplacer("{id_text}", "o."+quote(c.ID)+"::text", "{payload}", payload, "{columns}", list,
		"{range}", strings.Join(conditions, " AND "), "{position}", position).Replace(auditRowsSQL)
	return s.sql(o, text), args
}
