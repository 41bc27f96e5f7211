package store

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cdc-relay/cdc-relay/outbox"
)

// When a parked event is due. Other values of RetryIn are pauses from now, by the database's clock.
const (
	// NotDue is for an event behind another one of its lane: it moves when that one has moved.
	NotDue time.Duration = -1
	// WhenWell is for an event that waits for its topic or partition: it is due when MakeDue says so.
	WhenWell time.Duration = -2
)

// Parked is an event stored aside for a later attempt, with all that the attempt needs: it does not depend on the
// outbox row.
type Parked struct {
	Event    *outbox.Event
	Topic    string // as it was routed
	Key      []byte // as it was routed; nil = none: a lane of its own
	Class    outbox.ErrorClass
	Attempts int           // spent so far
	RetryIn  time.Duration // or NotDue, WhenWell
	Text     string        // the last error, for people
	Late     bool          // the stream had not delivered it in its place
}

// Lane names the events that keep an order among them.
type Lane struct {
	Topic string
	Key   []byte // nil: one event alone
}

const parkedColumns = `source, event_id, topic, key, epoch, from_stream, position_order, position_index,
 aggregate_type, aggregate_id, event_type, payload, headers, created_at, extra, retry_count, next_retry_at, last_error, error_class, last_error_at, late`

const parkedValues = `$1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15::jsonb, $16,
 CASE WHEN $17::bigint >= 0 THEN now() + $17 * interval '1 microsecond' WHEN $17 = -2 THEN 'infinity'::timestamptz END,
 $18, $19, now(), $20`

const parkSQL = `INSERT INTO {parked} (` + parkedColumns + `) SELECT ` + parkedValues + `
WHERE NOT EXISTS (SELECT FROM {journal} r WHERE r.source = $1 AND r.event_id = $2)
 AND NOT EXISTS (SELECT FROM {dlq} r WHERE r.source = $1 AND r.original_id = $2)
ON CONFLICT (source, event_id) DO NOTHING`

// Park commits events aside, all or none, durably, and says how many of them were not there yet. An id that is parked
// already keeps its first place. One that is journaled or dead is left alone: another relay had the slot for a while and
// settled it. Fenced.
func (s *Store) Park(ctx context.Context, events []Parked) (parked int64, err error) {
	o, source, err := s.outboxAndSource(ctx)
	if err == nil {
		err = s.fenced(ctx, writing, func(tx pgx.Tx) error {
			parked, err = s.parkEach(ctx, tx, o, source, events, parkSQL, nil)
			return err
		})
	}
	if err != nil {
		return 0, fmt.Errorf("park %d events: %w", len(events), err)
	}
	return parked, nil
}

// parkEach runs the statement, in one round trip, for each event, and says how many it parked. more, if it is not nil, adds
// what the statement needs besides parkedValues.
func (s *Store) parkEach(ctx context.Context, tx pgx.Tx, o *Outbox, source int32, events []Parked, statement string, more func(*params)) (parked int64, err error) {
	var b pgconn.Batch
	text := s.sql(o, statement)
	for i := range events {
		p, err := s.parkParams(o, source, &events[i])
		if err != nil {
			return 0, err
		}
		if more != nil {
			more(p)
		}
		b.ExecParams(text, p.values, p.oids, p.formats, nil)
	}
	results, err := tx.Conn().PgConn().ExecBatch(ctx, &b).ReadAll()
	for _, r := range results {
		parked += r.CommandTag.RowsAffected()
	}
	return parked, err
}

func (s *Store) parkParams(o *Outbox, source int32, e *Parked) (*params, error) {
	ev := e.Event
	p := new(params).int4(source)
	if err := p.id(o.IDType, ev.ID); err != nil {
		return nil, err
	}
	extra, err := s.extra(ev.Extra)
	if err != nil {
		return nil, err
	}
	p.text(e.Topic).add(pgtype.ByteaOID, binaryFormat, e.Key)
	p.int8(ev.Position.Epoch).boolean(!ev.Position.Table).int8(int64(ev.Position.Order)).int8(int64(ev.Position.Index))
	p.add(pgtype.TextOID, textFormat, ev.AggregateType).add(pgtype.TextOID, textFormat, ev.AggregateID).add(pgtype.TextOID, textFormat, ev.EventType)
	p.add(pgtype.ByteaOID, binaryFormat, ev.Payload).add(pgtype.TextOID, textFormat, ev.Headers).add(pgtype.TextOID, textFormat, ev.CreatedAt)
	p.add(pgtype.JSONBOID, textFormat, extra).int4(int32(e.Attempts)).int8(dueParam(e.RetryIn))
	return p.text(clean(e.Text)).text(string(e.Class)).boolean(e.Late), nil
}

func dueParam(d time.Duration) int64 {
	if d < 0 {
		return int64(d)
	}
	return d.Microseconds()
}

// id adds one id.
func (p *params) id(idType string, text []byte) error {
	id, err := appendID(nil, idType, text)
	if err != nil {
		return err
	}
	element, _ := idElement(idType)
	p.add(element, binaryFormat, id[4:])
	return nil
}

// ParkedRow is a parked event as it was stored.
type ParkedRow struct {
	Event    outbox.Event
	Attempts int
	Due      bool // its own time has come, or it has none
	Late     bool
	Replay   bool // it was a dead letter
}

// rowBytes is about what a parked event takes besides its payload and headers.
const rowBytes = 200

// Ask is a lane of which something is to be read.
type Ask struct {
	Lane  Lane
	After *outbox.Position // only what is behind it; nil: from the beginning
}

// Portion is the beginning of what was asked for of a lane's queue, or of a topic without a key what is due.
type Portion struct {
	Lane Lane
	Rows []ParkedRow
	More bool // there may be more behind these
	Held bool // it is empty, and a dead letter holds the lane
}

const queueOrder = ` ORDER BY epoch, from_stream, position_order, position_index`

// portionsSQL reads the lanes one after the other, each by the index that has them in queue order, and stops where the bytes
// are enough: lanes behind that are not in the answer. One of which nothing is parked is, without a row. A lane that is
// drained is read on from where its last portion ended, which spares the server the deleted rows in front of that.
const portionsSQL = `SELECT place, event_id::text, epoch, from_stream, position_order, position_index, aggregate_type, aggregate_id, event_type,
 payload, headers, created_at, extra::text, retry_count, coalesce(next_retry_at <= now(), true), late, replay IS NOT NULL, found, {held}
FROM (SELECT l.place, l.lane_topic, l.lane_key, b.*, sum(coalesce(b.bytes, 0)) OVER (ORDER BY l.place, b.nth ROWS UNBOUNDED PRECEDING) AS upto
 FROM unnest($2, $3, $6::bigint[], $7::boolean[], $8::bigint[], $9::bigint[]) WITH ORDINALITY
   AS l(lane_topic, lane_key, after_epoch, after_stream, after_order, after_index, place)
 LEFT JOIN LATERAL (SELECT f.*, row_number() OVER (` + queueOrder + `) AS nth, count(*) OVER () AS found,
   coalesce(octet_length(payload), 0) + coalesce(octet_length(headers), 0) + {row_bytes} AS bytes
  FROM (SELECT * FROM {parked} p WHERE source = $1 AND topic = l.lane_topic AND {lane}
   AND (epoch, from_stream, position_order, position_index) > (l.after_epoch, l.after_stream, l.after_order, l.after_index)` + queueOrder + ` LIMIT $4) f) b ON true) r
WHERE place = 1 AND coalesce(nth, 1) = 1 OR upto <= $5 ORDER BY place, nth`

// Portions reads the first parked events of each lane in queue order, at most so many of each and, but for the first, so
// many bytes of all. A lane that is not in the answer was not read. A lane without a key is read alone.
func (s *Store) Portions(ctx context.Context, asks []Ask, limit, maxBytes int) ([]Portion, error) {
	o, source, err := s.outboxAndSource(ctx)
	if err != nil {
		return nil, err
	}
	where, held := `md5(key) = md5(l.lane_key) AND key = l.lane_key`, `false`
	if asks[0].Lane.Key == nil {
		where = `key IS NULL AND next_retry_at <= now()`
	} else if s.config.HoldDead {
		where += s.free("p")
		held = `event_id IS NULL AND EXISTS (` + strings.NewReplacer("%.topic", "r.lane_topic", "%.key", "r.lane_key").Replace(holdingDead) + `)`
	}
	text := strings.NewReplacer("{lane}", where, "{held}", held, "{row_bytes}", strconv.Itoa(rowBytes)).Replace(portionsSQL)
	p := asksParams(source, asks, limit, maxBytes)
	formats := make([]int16, 19)
	formats[9] = binaryFormat
	var portions []Portion
	err = s.send(ctx, reading, s.sql(o, text), p, formats, func(v [][]byte) error {
		place, err := strconv.Atoi(string(v[0]))
		if err != nil {
			return err
		}
		if n := len(portions); n == 0 || portions[n-1].Lane.Topic != asks[place-1].Lane.Topic || !bytes.Equal(portions[n-1].Lane.Key, asks[place-1].Lane.Key) {
			portions = append(portions, Portion{Lane: asks[place-1].Lane, Held: string(v[18]) == "t"})
		}
		if v[1] == nil {
			return nil
		}
		last := &portions[len(portions)-1]
		row, err := s.parkedRow(v[1:])
		last.Rows = append(last.Rows, row)
		if err != nil {
			return err
		}
		found, err := strconv.Atoi(string(v[17]))
		last.More = found == limit || found > len(last.Rows)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read %d parked lanes: %w", len(asks), err)
	}
	return portions, nil
}

// first is in front of every position.
var first = outbox.Position{Epoch: -1}

// asksParams are the parameters of portionsSQL.
func asksParams(source int32, asks []Ask, limit, maxBytes int) *params {
	n := len(asks)
	topics, keys := arrayHeader(nil, pgtype.TextOID, n), arrayHeader(nil, pgtype.ByteaOID, n)
	epochs, streams := arrayHeader(nil, pgtype.Int8OID, n), arrayHeader(nil, pgtype.BoolOID, n)
	orders, indexes := arrayHeader(nil, pgtype.Int8OID, n), arrayHeader(nil, pgtype.Int8OID, n)
	for _, a := range asks {
		topics, keys = appendText(topics, a.Lane.Topic), appendText(keys, string(a.Lane.Key))
		after := &first
		if a.After != nil {
			after = a.After
		}
		epochs, streams = appendInt8(epochs, after.Epoch), appendBool(streams, !after.Table)
		orders, indexes = appendInt8(orders, int64(after.Order)), appendInt8(indexes, int64(after.Index))
	}
	p := new(params).int4(source).add(pgtype.TextArrayOID, binaryFormat, topics).add(pgtype.ByteaArrayOID, binaryFormat, keys)
	p.int8(int64(limit)).int8(int64(maxBytes))
	p.add(pgtype.Int8ArrayOID, binaryFormat, epochs).add(pgtype.BoolArrayOID, binaryFormat, streams)
	return p.add(pgtype.Int8ArrayOID, binaryFormat, orders).add(pgtype.Int8ArrayOID, binaryFormat, indexes)
}

func (s *Store) parkedRow(v [][]byte) (r ParkedRow, err error) {
	keep := func(b []byte) []byte {
		if b == nil {
			return nil
		}
		return append([]byte{}, b...)
	}
	e := &r.Event
	e.ID, e.AggregateType, e.AggregateID, e.EventType = keep(v[0]), keep(v[5]), keep(v[6]), keep(v[7])
	e.Payload, e.Headers, e.CreatedAt = keep(v[8]), keep(v[9]), keep(v[10])
	var numbers [4]int64
	for i, text := range [][]byte{v[1], v[3], v[4], v[12]} {
		if numbers[i], err = strconv.ParseInt(string(text), 10, 64); err != nil {
			return r, err
		}
	}
	e.Position = outbox.Position{Epoch: numbers[0], Table: string(v[2]) != "t", Order: uint64(numbers[1]), Index: uint32(numbers[2])}
	r.Attempts, r.Due, r.Late, r.Replay = int(numbers[3]), string(v[13]) == "t", string(v[14]) == "t", string(v[15]) == "t"
	if v[11] == nil {
		return r, nil
	}
	var extra map[string]*string
	if err := json.Unmarshal(v[11], &extra); err != nil {
		return r, err
	}
	for _, name := range s.config.Columns.Extra {
		var value []byte
		if text := extra[name]; text != nil {
			value = []byte(*text)
		}
		e.Extra = append(e.Extra, value)
	}
	return r, nil
}
