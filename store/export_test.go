package store

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
)

// JournalSQL is the statement for batches that may hold ids that are journaled already.
const JournalSQL = journalSQL

// Pool lets a test look at the very connections that the calls use.
func (s *Store) Pool() *pgxpool.Pool { return s.pool }

// SettleAs settles with another statement than the chosen one, for the measurement of the journal's shape.
func (s *Store) SettleAs(ctx context.Context, statement string, published []Published) error {
	o, source, err := s.outboxAndSource(ctx)
	if err != nil {
		return err
	}
	p, err := journalParams(o.IDType, source, published)
	if err != nil {
		return err
	}
	return s.send(ctx, writing, s.sql(o, statement), p, nil, nil)
}

// LookupAs looks up with another statement.
func (s *Store) LookupAs(ctx context.Context, statement string, ids [][]byte) (found int, err error) {
	o, source, err := s.outboxAndSource(ctx)
	if err != nil {
		return 0, err
	}
	p := new(params).int4(source)
	if err := p.ids(o.IDType, len(ids), func(i int) []byte { return ids[i] }); err != nil {
		return 0, err
	}
	err = s.send(ctx, reading, s.sql(o, statement), p, nil, func([][]byte) error { found++; return nil })
	return found, err
}

// EncodeBatch is what Settle does for each batch before it is sent.
func EncodeBatch(idType string, published []Published) (int, error) {
	buffers := copyBuffers.Get().(*copyBuffer)
	defer copyBuffers.Put(buffers)
	rows, err := copyRows(buffers.rows[:0], idType, 1, published)
	text := appendIDsLiteral(buffers.text[:0], idType, published)
	buffers.rows, buffers.text = rows, text
	return len(rows) + len(text), err
}
