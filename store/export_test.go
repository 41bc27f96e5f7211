package store

import (
	"context"
	"net"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
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

// Wrap has all connections from here on wrapped.
func (s *Store) Wrap(ctx context.Context, wrap func(net.Conn) net.Conn) error {
	c := s.pool.Config()
	dial := c.ConnConfig.DialFunc
	c.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return wrap(conn), nil
	}
	s.pool.Close()
	var err error
	s.pool, err = pgxpool.NewWithConfig(ctx, c)
	return err
}

// EncodeBatch is what Settle does for each batch before it is sent.
func EncodeBatch(idType string, published []Published) (int, error) {
	buffer := encoding.copyBuffer()
	defer encoding.keepCopyBuffer(buffer)
	err := buffer.fill(idType, 1, published)
	return len(buffer.batch) + len(buffer.rows), err
}

var encoding = &Store{copyBuffers: make(chan *copyBuffer, copyBuffersKept)}

// ExplainSince and ExplainIn are Postgres's plans for what UnrecordedSince and UnrecordedIn run.
func (s *Store) ExplainSince(ctx context.Context, since time.Time) (string, error) {
	return s.explain(ctx, s.sinceSQL, new(params).int4(s.source.Load()).int8(10_000).int8(since.UnixMicro()))
}

// ExplainIn explains the look at a range of blocks.
func (s *Store) ExplainIn(ctx context.Context) (string, error) {
	p := new(params).int4(s.source.Load()).int8(10_000).add(pgtype.TIDOID, textFormat, []byte("(0,0)")).add(pgtype.TIDOID, textFormat, []byte("(1000,0)"))
	return s.explain(ctx, func(*Outbox) string { return `o.ctid >= $3 AND o.ctid < $4` }, p)
}

// ExplainCatchUp and ExplainPruneDead do so for CatchUpRows and PruneDead.
func (s *Store) ExplainCatchUp(ctx context.Context) (string, error) {
	return s.explainSQL(ctx, s.catchUpSQL(), catchUpParams(s.source.Load(), 0, 500))
}

// ExplainPruneDead explains what PruneDead runs.
func (s *Store) ExplainPruneDead(ctx context.Context) (string, error) {
	return s.explainSQL(ctx, pruneDeadSQL, new(params).int4(s.source.Load()).text(s.config.Slot).int8(0).int8(100))
}

func (s *Store) explain(ctx context.Context, where func(*Outbox) string, p *params) (plan string, err error) {
	o, err := s.knownOutbox(ctx)
	if err != nil {
		return "", err
	}
	return s.explainSQL(ctx, s.unrecordedSQL(where(o)), p)
}

func (s *Store) explainSQL(ctx context.Context, text string, p *params) (plan string, err error) {
	o, err := s.knownOutbox(ctx)
	if err != nil {
		return "", err
	}
	err = s.send(ctx, auditing, "EXPLAIN "+s.sql(o, text), p, nil, func(row [][]byte) error {
		plan += string(row[0]) + "\n"
		return nil
	})
	return plan, err
}
