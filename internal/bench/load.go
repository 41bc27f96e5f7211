package bench

import "fmt"

// Load is the rows that fill a slot: each aggregate's in the order of their numbers.
type Load struct {
	Table, AggregateType   string
	Types                  int // above 1: AggregateType-0, -1, …, as many; an aggregate is of one of them
	Events, PerTransaction int
	Keys                   int  // aggregates
	HotKeys                int  // of these, the ones that half of all events are of; 0: all have as many
	Payload                int  // bytes of jsonb, about
	Headers                bool // two strings in the headers column, as tracing has them; false: the column is not set
}

// payloadFrame is the approximate size of a payload without its filler.
const payloadFrame = 100

// SQL is one statement that writes and commits the rows inside the server, or each single row would cost a round trip.
// It does not wait for the disk. Large payloads are of a kind that Postgres cannot compress, or there would be little
// in the WAL.
func (l Load) SQL() string {
	aggregateType := "'" + l.AggregateType + "'"
	if l.Types > 1 {
		aggregateType = fmt.Sprintf("'%s-' || aggregate %% %d", l.AggregateType, l.Types)
	}
	column, headers := "", ""
	if l.Headers {
		column = ", headers"
		headers = `, jsonb_build_object('traceparent', '00-' || md5(i::text) || '-00f067aa0ba902b7-01',
			'tenant', 'tenant-' || i % 97)`
	}
	return fmt.Sprintf(`DO $$
DECLARE
	total CONSTANT bigint := %d; per_transaction CONSTANT bigint := %d;
	aggregates CONSTANT bigint := %d; hot CONSTANT bigint := %d; filler CONSTANT int := %d;
	done bigint := 0;
BEGIN
	WHILE done < total LOOP
		SET LOCAL synchronous_commit = off;
		INSERT INTO %s (aggregate_type, aggregate_id, event_type, payload%s)
		SELECT %s, 'order-' || aggregate, 'OrderPlaced', jsonb_build_object(
			'order', i, 'customer', 'customer-' || i %% 5003, 'amount_cents', i * 7919 %% 100000, 'currency', 'EUR',
			'note', left(CASE WHEN filler < 1000 THEN repeat(md5(i::text), filler / 32 + 1)
				ELSE (SELECT string_agg(md5(i || '/' || n), '') FROM generate_series(0, filler / 32) n) END, filler))%s
		FROM (SELECT i, CASE WHEN hot = 0 THEN i * 2654435761 %% aggregates
			ELSE i / 2 * 2654435761 %% CASE i %% 2 WHEN 0 THEN hot ELSE aggregates END END AS aggregate
			FROM generate_series(done + 1, least(done + per_transaction, total)) i) numbered;
		COMMIT;
		done := done + per_transaction;
	END LOOP;
END $$`, l.Events, l.PerTransaction, l.Keys, l.HotKeys, max(l.Payload-payloadFrame, 0), l.Table, column,
		aggregateType, headers)
}
