package queue

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/db"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/record"
)

// rowBytes is about what a parked event takes besides its payload and headers.
const rowBytes = 200

const queueOrder = ` ORDER BY epoch, from_stream, position_order, position_index`

// portionsSQL reads the lanes one after the other, each by the index that has them in queue order, and stops where the
// bytes are enough: lanes behind that are not in the answer. One without parked events is, without a row. A lane
// that is drained is read on from where its last portion ended, which spares the server the deleted rows in front of
// that.
const portionsSQL = `SELECT place, event_id::text, epoch, from_stream, position_order, position_index, aggregate_type,
 aggregate_id, event_type,
 payload, headers, created_at, extra::text, retry_count, coalesce(next_retry_at <= now(), true), late,
 replay IS NOT NULL, found, {held}
FROM (SELECT l.place, l.lane_topic, l.lane_key, b.*,
 sum(coalesce(b.bytes, 0)) OVER (ORDER BY l.place, b.nth ROWS UNBOUNDED PRECEDING) AS upto
 FROM unnest($2, $3, $6::bigint[], $7::boolean[], $8::bigint[], $9::bigint[]) WITH ORDINALITY
   AS l(lane_topic, lane_key, after_epoch, after_stream, after_order, after_index, place)
 LEFT JOIN LATERAL (SELECT f.*, row_number() OVER (` + queueOrder + `) AS nth, count(*) OVER () AS found,
   coalesce(octet_length(payload), 0) + coalesce(octet_length(headers), 0) + {row_bytes} AS bytes
  FROM (SELECT * FROM {parked} p WHERE source = $1 AND topic = l.lane_topic AND {lane}
   AND (epoch, from_stream, position_order, position_index) > (l.after_epoch, l.after_stream, l.after_order,
   l.after_index)` + queueOrder + ` LIMIT $4) f) b ON true) r
WHERE place = 1 AND coalesce(nth, 1) = 1 OR upto <= $5 ORDER BY place, nth`

// Portions reads the first parked events of each lane in queue order, at most so many of each and, but for the first,
// so many bytes of all. A lane that is not in the answer was not read: of several outboxes those of one are. A lane
// without a key is read alone.
func (s *Queue) Portions(ctx context.Context, asks []record.Ask, limit, maxBytes int) ([]record.Portion, error) {
	o, source, err := s.db.TableAndSource(ctx)
	if err != nil {
		return nil, err
	}
	source = cmp.Or(asks[0].Lane.Source, source)
	for i := range asks {
		if asks[i].Lane.Source != asks[0].Lane.Source {
			asks = asks[:i]
			break
		}
	}
	where, held := `md5(key) = md5(l.lane_key) AND key = l.lane_key`, `false`
	if asks[0].Lane.Key == nil {
		where = `key IS NULL AND next_retry_at <= now()`
	} else if s.db.Config.HoldDead {
		where += s.free("p")
		held = `event_id IS NULL AND EXISTS (` +
			strings.NewReplacer("%.source", "$1", "%.topic", "r.lane_topic", "%.key", "r.lane_key").Replace(holdingDead) + `)`
	}
	text := strings.NewReplacer("{lane}", where, "{held}", held, "{row_bytes}",
		strconv.Itoa(rowBytes)).Replace(portionsSQL)
	p := asksParams(source, asks, limit, maxBytes)
	formats := make([]int16, 19)
	formats[9] = db.BinaryFormat
	var portions []record.Portion
	err = s.db.Send(ctx, db.Reading, s.db.SQL(o, text), p, formats, func(v [][]byte) error {
		place, err := strconv.Atoi(string(v[0]))
		if err != nil {
			return err
		}
		if n := len(portions); n == 0 || portions[n-1].Lane.Topic != asks[place-1].Lane.Topic ||
			!bytes.Equal(portions[n-1].Lane.Key, asks[place-1].Lane.Key) {
			portions = append(portions, record.Portion{Lane: asks[place-1].Lane, Held: string(v[18]) == "t"})
		}
		if v[1] == nil {
			return nil
		}
		last := &portions[len(portions)-1]
		row, err := s.parkedRow(v[1:])
		row.Event.Source = last.Lane.Source
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
func asksParams(source int32, asks []record.Ask, limit, maxBytes int) *db.Params {
	n := len(asks)
	topics, keys := db.ArrayHeader(nil, pgtype.TextOID, n), db.ArrayHeader(nil, pgtype.ByteaOID, n)
	epochs, streams := db.ArrayHeader(nil, pgtype.Int8OID, n), db.ArrayHeader(nil, pgtype.BoolOID, n)
	orders, indexes := db.ArrayHeader(nil, pgtype.Int8OID, n), db.ArrayHeader(nil, pgtype.Int8OID, n)
	for _, a := range asks {
		topics, keys = db.AppendText(topics, a.Lane.Topic), db.AppendText(keys, string(a.Lane.Key))
		after := &first
		if a.After != nil {
			after = a.After
		}
		epochs, streams = db.AppendInt8(epochs, after.Epoch), db.AppendBool(streams, !after.Table)
		orders, indexes = db.AppendInt8(orders, int64(after.Order)), db.AppendInt8(indexes, int64(after.Index))
	}
	p := new(db.Params).Int4(source).Add(pgtype.TextArrayOID, db.BinaryFormat, topics).Add(pgtype.ByteaArrayOID,
		db.BinaryFormat, keys)
	p.Int8(int64(limit)).Int8(int64(maxBytes))
	p.Add(pgtype.Int8ArrayOID, db.BinaryFormat, epochs).Add(pgtype.BoolArrayOID, db.BinaryFormat, streams)
	return p.Add(pgtype.Int8ArrayOID, db.BinaryFormat, orders).Add(pgtype.Int8ArrayOID, db.BinaryFormat, indexes)
}

func (s *Queue) parkedRow(v [][]byte) (r record.ParkedRow, err error) {
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
	e.Position = outbox.Position{Epoch: numbers[0], Table: string(v[2]) != "t", Order: uint64(numbers[1]),
		Index: uint32(numbers[2])}
	r.Attempts, r.Due, r.Late, r.Replay = int(numbers[3]), string(v[13]) == "t", string(v[14]) == "t", string(v[15]) == "t"
	if v[11] == nil {
		return r, nil
	}
	var extra map[string]*string
	if err := json.Unmarshal(v[11], &extra); err != nil {
		return r, err
	}
	for _, name := range s.db.Config.Columns.Extra {
		var value []byte
		if text := extra[name]; text != nil {
			value = []byte(*text)
		}
		e.Extra = append(e.Extra, value)
	}
	return r, nil
}
