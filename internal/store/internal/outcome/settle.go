package outcome

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/db"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/record"
)

// uniqueViolation is SQLSTATE unique_violation.
const uniqueViolation = "23505"

// JournalSQL writes a batch that may hold ids that are journaled already. An event that is journaled stays as it is;
// another one that has its id replaces it: one of the stream, or a row that was read when the other was there. The ids
// are sent once and written twice, as rows and as one array.
var JournalSQL = journalRows + ` ON CONFLICT (source, event_id) DO UPDATE SET topic = excluded.topic,
 partition = excluded.partition, "offset" = excluded."offset", stream_mark = excluded.stream_mark,
 published_at = excluded.published_at WHERE excluded.stream_mark <> coalesce(j.stream_mark, 0)
 AND (excluded.stream_mark >= 0 OR ` + outbox.ReusedSQL("excluded.stream_mark") + `)` + journalEnd

const (
	// rejournalSQL gives those that are journaled already their present place; where one id is of two rows of the outbox,
	// the place of the later.
	rejournalSQL = journalRows + ` ON CONFLICT (source, event_id) DO UPDATE SET topic = excluded.topic,
 partition = excluded.partition, "offset" = excluded."offset", stream_mark = excluded.stream_mark,
 published_at = CASE WHEN (j.topic, j.partition, j."offset") = (excluded.topic, excluded.partition,
 excluded."offset") AND j."offset" >= 0 THEN j.published_at ELSE excluded.published_at END` + journalEnd

	journalRows = `WITH rows AS (
 INSERT INTO {journal} AS j (source, event_id, topic, partition, "offset", stream_mark)
 SELECT DISTINCT ON (u.id) $1, u.id, u.topic, u.partition, u."offset", NULLIF(u.mark, 0)
 FROM unnest($2, $3, $4, $5, $6) WITH ORDINALITY AS u(id, topic, partition, "offset", mark, n) ORDER BY u.id, u.n DESC`
	journalEnd = `)
INSERT INTO {batch} (source, size, ids) VALUES ($1, cardinality($2), $2)`
)

// Settle commits the outcomes of events, all or none, and returns after the commit is durable (S1). An event that is
// settled already is left as it is (S3). Another one that had its id gives up its place in the journal, and its dead
// letter once that is closed; an open one stays, and is [record.ErrIDTaken]. A dead letter needs the epoch
// ([record.ErrFenced]); journal rows alone do not.
//
// It touches the relay's own tables only and so waits for no lock on the outbox. While a synchronous standby is away
// the commit waits as long as ctx lives.
func (s *Writer) Settle(ctx context.Context, published []record.Published, dead []record.Dead) error {
	if len(published) == 0 && len(dead) == 0 {
		return nil
	}
	o, source, err := s.db.TableAndSource(ctx)
	if err == nil {
		err = s.settle(ctx, o, source, published, dead)
	}
	if err != nil {
		return fmt.Errorf("settle %d published and %d dead events: %w", len(published), len(dead), err)
	}
	return nil
}

func (s *Writer) settle(ctx context.Context, o *db.Table, source int32, published []record.Published,
	dead []record.Dead) error {
	if len(dead) == 0 {
		err := s.copyJournal(ctx, o, source, published)
		if !isUniqueViolation(err) {
			return err
		}
	}
	journal, err := s.journalParams(o.IDType, source, published)
	if err != nil {
		return err
	}
	text := s.db.SQL(o, JournalSQL)
	if len(dead) == 0 && len(journal) == 1 {
		return s.db.Send(ctx, db.Writing, text, journal[0], nil, nil)
	}
	if len(dead) == 0 {
		return s.db.Tx(ctx, db.Writing, func(tx pgx.Tx) error { return execEach(ctx, tx, text, journal) })
	}
	bytes := 0
	for i := range dead {
		bytes += len(dead[i].Event.Payload) + len(dead[i].Event.Headers)
	}
	return s.db.Fenced(ctx, db.Writing.For(bytes), func(tx pgx.Tx) error {
		if err := execEach(ctx, tx, text, journal); err != nil {
			return err
		}
		for i := range dead {
			if err := s.insertDead(ctx, tx, o, cmp.Or(dead[i].Event.Source, source), &dead[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

// journalParams are the parameters of JournalSQL, once for each source.
func (s *Writer) journalParams(idType string, source int32, published []record.Published) (
	all []*db.Params, err error,
) {
	return all, bySource(published, source, sourceOf, func(source int32, published []record.Published) error {
		p, err := JournalParams(idType, source, published)
		all = append(all, p)
		return err
	})
}

func sourceOf(p *record.Published) int32 { return p.Source }

func execEach(ctx context.Context, tx pgx.Tx, text string, params []*db.Params) error {
	for _, p := range params {
		if err := db.ExecWire(ctx, tx, text, p); err != nil {
			return err
		}
	}
	return nil
}

func isUniqueViolation(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == uniqueViolation
}

// JournalParams are the parameters of JournalSQL.
func JournalParams(idType string, source int32, published []record.Published) (*db.Params, error) {
	p := new(db.Params).Int4(source)
	n := len(published)
	if err := p.IDs(idType, n, func(i int) []byte { return published[i].ID }); err != nil {
		return nil, err
	}
	size := db.ArrayHeaderSize
	for i := range published {
		size += 4 + len(published[i].Topic)
	}
	topics := db.ArrayHeader(make([]byte, 0, size), pgtype.TextOID, n)
	partitions := db.ArrayHeader(make([]byte, 0, db.ArrayHeaderSize+n*(4+4)), pgtype.Int4OID, n)
	offsets := db.ArrayHeader(make([]byte, 0, db.ArrayHeaderSize+n*(4+8)), pgtype.Int8OID, n)
	marks := db.ArrayHeader(make([]byte, 0, db.ArrayHeaderSize+n*(4+4)), pgtype.Int4OID, n)
	for i := range published {
		e := &published[i]
		topics = db.AppendText(topics, e.Topic)
		partitions = db.AppendInt4(partitions, e.Partition)
		offsets = db.AppendInt8(offsets, e.Offset)
		marks = db.AppendInt4(marks, e.Mark)
	}
	p.Add(pgtype.TextArrayOID, db.BinaryFormat, topics)
	p.Add(pgtype.Int4ArrayOID, db.BinaryFormat, partitions)
	p.Add(pgtype.Int8ArrayOID, db.BinaryFormat, offsets)
	p.Add(pgtype.Int4ArrayOID, db.BinaryFormat, marks)
	return p, nil
}
