package catalog

import (
	"context"

	"github.com/cdc-relay/cdc-relay/internal/store/internal/record"
)

// Outbox reads the table's shape from the catalog. The error names the column that is missing or of the wrong type, and
// what repairs it. It reads the catalog only and waits for no lock.
func (s *Catalog) Outbox(ctx context.Context) (record.Outbox, error) {
	o, err := s.db.ReadTable(ctx)
	if err != nil {
		return record.Outbox{}, err
	}
	return o.Outbox, nil
}
