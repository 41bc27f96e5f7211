package outcome

import (
	"context"
	"fmt"
	"strconv"

	"github.com/cdc-relay/cdc-relay/store/internal/db"
	"github.com/cdc-relay/cdc-relay/store/internal/record"
)

// lookupSQL gives the places (from 1) of the ids that are recorded, and 0 after a takeover by another.
const lookupSQL = `SELECT o.place FROM unnest($2) WITH ORDINALITY AS o({id}, place) WHERE {recorded}
UNION ALL SELECT 0 WHERE NOT EXISTS (SELECT FROM {epoch} WHERE slot = $3 AND epoch = $4)`

// Lookup tells for each id whether its event is terminal: in the journal, parked, or a dead letter of this source.
// Three index probes per id at most; 1,000 ids at a time are a good measure. ErrFenced after a takeover by another:
// what that one has parked would be left out, and what comes behind it in its lane sent before it.
func (s *Writer) Lookup(ctx context.Context, ids [][]byte) ([]bool, error) {
	found := make([]bool, len(ids))
	if len(ids) == 0 {
		return found, nil
	}
	o, source, err := s.db.TableAndSource(ctx)
	if err == nil {
		p := new(db.Params).Int4(source)
		if err = p.IDs(o.IDType, len(ids), func(i int) []byte { return ids[i] }); err == nil {
			p.Text(s.db.Config.Slot).Int8(s.db.Epoch())
			err = s.db.Send(ctx, db.Reading, s.db.SQL(o, lookupSQL), p, nil, func(row [][]byte) error {
				place, err := strconv.Atoi(string(row[0]))
				switch {
				case err != nil:
					return err
				case place == 0:
					return record.ErrFenced
				}
				found[place-1] = true
				return nil
			})
		}
	}
	if err != nil {
		return nil, fmt.Errorf("look up %d ids: %w", len(ids), err)
	}
	return found, nil
}
