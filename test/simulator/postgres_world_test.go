package simulator

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/relay"
)

// What happens to the server by others than relays, and by no relay's choice.

func (r *realTables) orders(t *tables, places []place) {
	var order []string
	r.outside(func() {
		rows, err := r.main.Query(context.Background(), `SELECT id FROM (
 SELECT row_number AS n, event_id AS id FROM public.cdc_relay_catch_up WHERE source = $1
 UNION ALL SELECT position_order, event_id FROM public.cdc_relay_parked WHERE source = $1
 UNION ALL SELECT position_order, original_id FROM public.outbox_events_dlq d WHERE source = $1 AND replayed_at IS NULL
  AND discarded_at IS NULL
  AND NOT EXISTS (SELECT FROM public.cdc_relay_parked p WHERE p.source = d.source AND p.event_id = d.original_id)
) l ORDER BY n`, t.source)
		if err == nil {
			order, err = pgx.CollectRows(rows, pgx.RowTo[string])
		}
		if err != nil {
			panic(err)
		}
	})
	at := map[string]int{}
	for i, id := range order {
		at[id] = i
	}
	id := func(p place) string {
		if p.row != nil {
			return p.row.id
		}
		return string(p.event.ID)
	}
	for from := 0; from < len(places); { // each run of places that are alike
		to := from
		for to < len(places) && places[to].behind == places[from].behind && places[to].nth == places[from].nth {
			to++
		}
		slices.SortFunc(places[from:to], func(a, b place) int { return at[id(a)] - at[id(b)] })
		from = to
	}
}

func (r *realTables) begins(tx *transaction) {
	r.outside(func() {
		ctx := context.Background()
		conn, err := r.pool.Acquire(ctx)
		if err == nil {
			_, err = conn.Exec(ctx, `BEGIN; SELECT pg_current_xact_id()`)
		}
		if err != nil {
			panic(err)
		}
		r.writers[tx] = conn
	})
}

func (r *realTables) ends(tx *transaction) {
	conn := r.writers[tx]
	if conn == nil {
		return
	}
	delete(r.writers, tx)
	r.outside(func() {
		var b pgx.Batch
		for _, row := range tx.rows {
			if row.visible {
				b.Queue(`INSERT INTO public.outbox_events VALUES ($1, $2, $3, NULLIF($4, ''), 'made', $5::text::jsonb,
 NULLIF($6, '')::jsonb, $7)`, row.seq, row.id, row.kind, row.key, row.payload, row.headers, row.made)
			}
		}
		b.Queue(`COMMIT`)
		if err := conn.SendBatch(context.Background(), &b).Close(); err != nil {
			panic(err)
		}
		conn.Release()
	})
}

func (r *realTables) deletes(row *row) {
	r.outside(func() { r.exec(`DELETE FROM public.outbox_events WHERE id = $1`, row.id) })
}

func (r *realTables) asks(q *request) {
	c := relay.StoreConfig(r.w.profile.config)
	c.Slot = q.slot
	if r.people[q.slot] == nil {
		r.people[q.slot] = r.newStore(c)
	}
	tell := r.tell()
	r.outside(func() {
		tell()
		id, err := r.people[q.slot].AddRequest(context.Background(), q.Kind, q.Filter, q.Who, q.Note)
		if err != nil || id != q.ID {
			panic(fmt.Sprintf("request %d is %d: %v", q.ID, id, err))
		}
	})
}

func (r *realTables) remakes(t *table) {
	r.people = map[string]*store.Store{}
	r.outside(func() {
		if t.number > 1 {
			r.exec(`DROP TABLE public.outbox_events CASCADE`)
			r.exec(outboxSQL)
		}
		err := r.main.QueryRow(context.Background(), `SELECT 'public.outbox_events'::regclass::oid`).Scan(&t.oid)
		if err != nil {
			panic(err)
		}
	})
}
