package table

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/db"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/record"
)

// A look at all rows of a large table may take long; then it looks at some.
const (
	wholeTable  = 5 * time.Second
	sampledRows = 100_000
)

// ChosenTopics are the topics that the outbox's rows choose, at most so many: each is the parts one after another. Rows
// with NULL in one of the columns of set choose none. It reports whether it has seen all rows.
func (s *Reader) ChosenTopics(ctx context.Context, parts []outbox.Part, set []string,
	most int) (list []string, all bool, err error) {
	var expression []string
	for _, p := range parts {
		if p.Column == "" {
			expression = append(expression, db.Literal(p.Literal))
		} else {
			expression = append(expression, "coalesce(o."+db.Quote(p.Column)+"::text, '')")
		}
	}
	where := "true"
	for _, column := range set {
		where += " AND o." + db.Quote(column) + " IS NOT NULL"
	}
	look := func(from string) error {
		return s.db.Tx(ctx, db.Limits{Lock: db.Reading.Lock, Statement: wholeTable, Interpreted: true},
			func(tx pgx.Tx) error {
				rows, err := tx.Query(ctx, fmt.Sprintf("SELECT DISTINCT %s FROM %s o WHERE %s LIMIT %d",
					strings.Join(expression, " || "), from, where, most))
				if err == nil {
					list, err = pgx.CollectRows(rows, pgx.RowTo[string])
				}
				return err
			})
	}
	whole := s.db.Names.Outbox
	if err = look(whole); record.Classify(err) == record.Retry { // the statement took too long
		return list, false, look(fmt.Sprintf("(SELECT * FROM %s LIMIT %d)", whole, sampledRows))
	}
	if err != nil {
		return nil, false, fmt.Errorf("look which topics the rows choose: %w", err)
	}
	return list, true, nil
}

// SeenTopics are the topics that the relay has published to, or has events for.
func (s *Reader) SeenTopics(ctx context.Context, most int) (list []string, err error) {
	err = s.db.Tx(ctx, db.Reading, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, s.db.Names.SQL(fmt.Sprintf(`SELECT topic FROM {offset} WHERE slot = $1
UNION SELECT p.topic FROM {parked} p JOIN {source} s ON s.source = p.source WHERE s.slot = $1 LIMIT %d`, most)),
			s.db.Config.Slot)
		if err == nil {
			list, err = pgx.CollectRows(rows, pgx.RowTo[string])
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("look which topics the relay knows: %w", err)
	}
	return list, nil
}
