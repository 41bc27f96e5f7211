package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cdc-relay/cdc-relay/outbox"
)

// uniqueViolation is SQLSTATE unique_violation.
const uniqueViolation = "23505"

// Published is one event that the broker acknowledged.
type Published struct {
	ID        []byte // text form, as pgoutput gives it
	Topic     string
	Partition int32
	Offset    int64 // -1 when the broker could not say
}

// Dead is one event that was given up, with what a person needs to judge it and to publish it again.
type Dead struct {
	Event     *outbox.Event
	Topic     string // as it was routed
	Key       []byte // as it was routed; nil = none
	Partition int32  // -1 = it had none
	Attempts  int
	Class     outbox.ErrorClass
	Code      string // short, no event data
	Text      string // for people
	Holds     bool   // its lane waits until it is replayed or discarded; only of an event with a key
}

// journalSQL writes a batch that may hold ids that are journaled already, which stay as they are. The ids are sent once and written
// twice, as rows and as one array. rejournalSQL gives those that are journaled already their place anew; where
// one id is of two rows of the outbox, the place of either.
const (
	journalSQL   = journalRows + journalFrom + `DO NOTHING` + journalEnd
	rejournalSQL = journalRows + `DISTINCT ON (u.id) ` + journalFrom + `(source, event_id) DO UPDATE SET topic = excluded.topic, partition = excluded.partition, "offset" = excluded."offset",
 published_at = CASE WHEN (j.topic, j.partition, j."offset") = (excluded.topic, excluded.partition, excluded."offset") THEN j.published_at ELSE excluded.published_at END` + journalEnd

	journalRows = `WITH rows AS (
 INSERT INTO {journal} AS j (source, event_id, topic, partition, "offset")
 SELECT `
	journalFrom = `$1, u.id, u.topic, u.partition, u."offset" FROM unnest($2, $3, $4, $5) AS u(id, topic, partition, "offset")
 ON CONFLICT `
	journalEnd = `)
INSERT INTO {batch} (source, size, ids) VALUES ($1, cardinality($2), $2)`
)

// Settle commits the outcomes of events, all or none, and returns after the commit is durable (S1). An id that is
// settled already is left as it is (S3). A dead letter needs the epoch ([ErrFenced]); journal rows alone do not.
//
// It touches the relay's own tables only and so waits for no lock on the outbox. While a synchronous standby is away the
// commit waits as long as ctx lives.
func (s *Store) Settle(ctx context.Context, published []Published, dead []Dead) error {
	if len(published) == 0 && len(dead) == 0 || !Journaling {
		return nil
	}
	o, source, err := s.outboxAndSource(ctx)
	if err == nil {
		err = s.settle(ctx, o, source, published, dead)
	}
	if err != nil {
		return fmt.Errorf("settle %d published and %d dead events: %w", len(published), len(dead), err)
	}
	return nil
}

func (s *Store) settle(ctx context.Context, o *Outbox, source int32, published []Published, dead []Dead) error {
	if len(dead) == 0 {
		err := s.copyJournal(ctx, o, source, published)
		if !isUniqueViolation(err) {
			return err
		}
	}
	var p *params
	if len(published) > 0 {
		var err error
		if p, err = journalParams(o.IDType, source, published); err != nil {
			return err
		}
	}
	text := s.sql(o, journalSQL)
	if len(dead) == 0 {
		return s.send(ctx, writing, text, p, nil, nil)
	}
	return s.fenced(ctx, writing, func(tx pgx.Tx) error {
		if p != nil {
			if err := execWire(ctx, tx, text, p); err != nil {
				return err
			}
		}
		for i := range dead {
			if err := s.insertDead(ctx, tx, o, source, &dead[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

func isUniqueViolation(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == uniqueViolation
}

func execWire(ctx context.Context, tx pgx.Tx, text string, p *params) error {
	_, err := tx.Conn().PgConn().ExecParams(ctx, text, p.values, p.oids, p.formats, nil).Close()
	return err
}

func journalParams(idType string, source int32, published []Published) (*params, error) {
	p := new(params).int4(source)
	n := len(published)
	if err := p.ids(idType, n, func(i int) []byte { return published[i].ID }); err != nil {
		return nil, err
	}
	size := arrayHeaderSize
	for i := range published {
		size += 4 + len(published[i].Topic)
	}
	topics := arrayHeader(make([]byte, 0, size), pgtype.TextOID, n)
	partitions := arrayHeader(make([]byte, 0, arrayHeaderSize+n*(4+4)), pgtype.Int4OID, n)
	offsets := arrayHeader(make([]byte, 0, arrayHeaderSize+n*(4+8)), pgtype.Int8OID, n)
	for i := range published {
		e := &published[i]
		topics = appendText(topics, e.Topic)
		partitions = appendInt4(partitions, e.Partition)
		offsets = appendInt8(offsets, e.Offset)
	}
	p.add(pgtype.TextArrayOID, binaryFormat, topics)
	p.add(pgtype.Int4ArrayOID, binaryFormat, partitions)
	p.add(pgtype.Int8ArrayOID, binaryFormat, offsets)
	return p, nil
}
