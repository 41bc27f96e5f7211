package store

import (
	"context"
	"fmt"
	"strconv"
)

// lookupSQL gives the places (from 1) of the ids that are recorded.
const lookupSQL = `SELECT o.place FROM unnest($2) WITH ORDINALITY AS o({id}, place) WHERE {recorded}`

// Lookup tells for each id whether its event is terminal: in the journal, parked, or a dead letter of this source.
// Three index probes per id at most; 1,000 ids at a time are a good measure.
func (s *Store) Lookup(ctx context.Context, ids [][]byte) ([]bool, error) {
	found := make([]bool, len(ids))
	if len(ids) == 0 {
		return found, nil
	}
	o, source, err := s.outboxAndSource(ctx)
	if err == nil {
		p := new(params).int4(source)
		if err = p.ids(o.IDType, len(ids), func(i int) []byte { return ids[i] }); err == nil {
			err = s.send(ctx, reading, s.sql(o, lookupSQL), p, nil, func(row [][]byte) error {
				place, err := strconv.Atoi(string(row[0]))
				if err == nil {
					found[place-1] = true
				}
				return err
			})
		}
	}
	if err != nil {
		return nil, fmt.Errorf("look up %d ids: %w", len(ids), err)
	}
	return found, nil
}
