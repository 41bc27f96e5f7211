package store_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store"
)

// rowsSQL selects every row of the relay's tables and the outbox: its table, owner and key, and what it
// has, NULL if no transaction from the number $1 on has written it.
var rowsSQL = func() string {
	const has = `CASE WHEN x.xmin::text::bigint >= $1 THEN to_jsonb(x)::text END`
	var parts []string
	for _, table := range [][3]string{
		{"journal", "source::text", "event_id"}, {"journal_batch", "source::text", "batch"},
		{"parked", "source::text", "event_id"},
		{"catch_up", "source::text", "row_number"}, {"alarms", "source::text", "id"}, {"edit", "source::text", "id"},
		{"spool", "source::text", "number"},
		{"state", "slot", "slot"}, {"epoch", "slot", "slot"}, {"request", "slot", "id"},
		{"offset", "slot", "topic || '/' || partition"},
	} {
		parts = append(parts, fmt.Sprintf(`SELECT '%s', %s, (%s)::text, %s FROM cdc_relay_%[1]s x`,
			table[0], table[1], table[2], has))
	}
	return strings.Join(append(parts,
		`SELECT 'dead', source::text, original_id::text, `+has+` FROM outbox_events_dlq x`,
		`SELECT 'row', '', id::text, `+has+` FROM outbox_events x`), " UNION ALL ")
}()

type tableRow struct{ table, of, key string }

// allRows has each row as JSON, and the number of the next transaction. was are the rows before that of the number.
func allRows(t *testing.T, conn *pgx.Conn, was map[tableRow]string,
	number int64) (rows map[tableRow]string, next int64) {
	t.Helper()
	must(t, "read the next number", conn.QueryRow(t.Context(),
		`SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint`).Scan(&next))
	rows = map[tableRow]string{}
	found, err := conn.Query(t.Context(), rowsSQL, number)
	must(t, "read all rows", err)
	var r tableRow
	var text *string
	_, err = pgx.ForEachRow(found, []any{&r.table, &r.of, &r.key, &text}, func() error {
		if rows[r] = was[r]; text != nil {
			rows[r] = *text
		}
		return nil
	})
	must(t, "read all rows", err)
	return rows, next
}

// difference says by table which rows are new (+), which are gone (-), and of the others which columns have changed.
func difference(t *testing.T, before, after map[tableRow]string) string {
	t.Helper()
	said := map[string][]string{}
	for r, text := range after {
		if before[r] == text {
			continue
		}
		if before[r] == "" {
			said[r.table+" of "+r.of] = append(said[r.table+" of "+r.of], "+"+r.key+newBatch(t, r, text))
			continue
		}
		var changed []string
		var old, columns map[string]any
		must(t, "read a row as it was", json.Unmarshal([]byte(before[r]), &old))
		must(t, "read a row", json.Unmarshal([]byte(text), &columns))
		for name, value := range columns {
			if fmt.Sprint(value) != fmt.Sprint(old[name]) {
				changed = append(changed, name)
			}
		}
		slices.Sort(changed)
		kind := r.table + " of " + r.of + " " + strings.Join(changed, ",")
		said[kind] = append(said[kind], r.key)
	}
	for r := range before {
		if _, is := after[r]; !is {
			said[r.table+" of "+r.of] = append(said[r.table+" of "+r.of], "-"+r.key)
		}
	}
	var text []string
	for _, kind := range slices.Sorted(maps.Keys(said)) {
		slices.Sort(said[kind])
		text = append(text, kind+": "+strings.Join(said[kind], " "))
	}
	return strings.Join(text, "; ")
}

// newBatch says of a new batch of the journal how many events it has and what was done with them.
func newBatch(t *testing.T, r tableRow, text string) string {
	t.Helper()
	var b struct {
		Size              int
		Mirrored, Deleted bool
	}
	if r.table != "journal_batch" {
		return ""
	}
	must(t, "read a batch", json.Unmarshal([]byte(text), &b))
	return fmt.Sprintf("(%d %t %t)", b.Size, b.Mirrored, b.Deleted)
}

// Break caught: a statement that changes other rows than it did, or other columns. testdata/changes-*.txt holds what
// each method that writes changes, one after the other, where events are in every mixture of states, beside a
// neighbour who has the same ids in others: change it only when it ought to be something else (go test ./internal/store
// -run ChangesWhatItDid -rewrite). Seen to fail with most of the changes that `make mutate-sql` makes to what is
// written.
func TestEveryMethodChangesWhatItDid(t *testing.T) {
	for _, after := range []string{store.Mark, store.Delete} {
		t.Run(after, func(t *testing.T) {
			pg, s, _ := withEverything(t, after)
			own := strings.NewReplacer(strings.Fields(pg.Query(t,
				`SELECT concat_ws(' ', s.source, 'S', s.source + 1, 'N', slot, 'S') FROM cdc_relay_source s
 WHERE slot <> 'neighbour'`))...)
			conn := pg.Connect(t)
			methods := append(manyMethods(s), everyMethod(s, store.Mark)...)
			if after == store.Delete {
				methods = cleaningMethods(s)
			}
			g := openGolden(t, "changes-"+after+".txt")
			was, number := allRows(t, conn, nil, 0)
			for _, row := range methods {
				noOlderTransaction(t, s)
				must(t, row.what, row.do(t.Context()))
				if slices.Contains(readingMethods, row.what) {
					continue
				}
				var is map[tableRow]string
				is, number = allRows(t, conn, was, number)
				g.line(t, row.what+": "+own.Replace(plainIDs(difference(t, was, is))))
				was = is
			}
			g.end(t)
		})
	}
}

// readingMethods are those of everyMethod whose changes are not looked at: there are none.
var readingMethods = []string{
	"Plan", "Outbox", "State", "Memories", "Slot", "CheckPublication", "OldTransactions", "CountUnrecorded", "CatchUpRows",
	"Lookup", "Tails", "MirrorLag", "ParkedLanes", "ParkedAmong", "CountParked", "OldestParked", "CountDead",
	"WaitingTopics", "DueLanes", "Portions", "AuditState", "Running", "UnrecordedSince", "UnrecordedIn", "LateRows",
	"CheckExpressions", "Clock", "NextRequest", "Request", "Outcomes", "Count", "CountUntil", "DeadLetters", "DeadLetter",
	"DeadReasons",
	"ParkedKeys", "ParkedSum", "RepublishRows", "Find", "Locate", "OfAggregate", "OfKey", "InitLacks", "Alarms",
	"ChosenTopics", "SeenTopics", "Sources", "AuditRows", "Paused", "Breaker", "Cleanable", "ReusedAside",
}

// cleaningMethods are those that do away with what is old.
func cleaningMethods(s *store.Store) (list []calledMethod) {
	for _, limit := range []int{5, 1000} {
		for name, step := range map[string]func(context.Context) (int, bool, error){
			"1 MirrorStep":    func(ctx context.Context) (int, bool, error) { return s.MirrorStep(ctx, limit) },
			"2 DeleteStep":    func(ctx context.Context) (int, bool, error) { return s.DeleteStep(ctx, time.Hour, limit) },
			"3 PruneDead":     func(ctx context.Context) (int, bool, error) { return s.PruneDead(ctx, time.Hour, limit) },
			"4 Prune":         func(ctx context.Context) (int, bool, error) { return s.Prune(ctx, time.Hour, limit) },
			"5 PruneRequests": func(ctx context.Context) (int, bool, error) { return s.PruneRequests(ctx, time.Hour, limit/5) },
		} {
			list = append(list, calledMethod{fmt.Sprint(name, " of ", limit), func(ctx context.Context) error {
				_, _, err := step(ctx)
				return err
			}})
		}
	}
	slices.SortStableFunc(list, func(a, b calledMethod) int { return strings.Compare(a.what[:1], b.what[:1]) })
	return list
}

// manyMethods are the methods that write, on many events.
func manyMethods(s *store.Store) []calledMethod {
	attempts := func(from, to int) (list []store.Attempt) {
		for i := from; i < to; i++ {
			list = append(list, store.Attempt{ID: []byte(uuid(i)), Attempts: 9, Class: outbox.Transient, Text: "again"})
		}
		return list
	}
	resolve := func(kind string, step func(context.Context, *store.Request, store.DeadCursor, int) (store.Step, error),
	) calledMethod {
		return calledMethod{kind, func(ctx context.Context) error {
			id, err := s.AddRequest(ctx, kind, store.Filter{Topic: map[string]string{"replay": "t"}[kind], All: true}, "ann", "")
			if err != nil {
				return err
			}
			r, err := s.Request(ctx, id)
			if err == nil {
				err = s.StartRequest(ctx, r)
			}
			at := store.DeadCursor{}
			for _, limit := range []int{3, 1000} {
				if err == nil {
					var done store.Step
					done, err = step(ctx, r, at, limit)
					at = done.Next
				}
			}
			return err
		}}
	}
	retry := func(limit int) func(context.Context) error {
		return func(ctx context.Context) error {
			r, err := s.Request(ctx, 7)
			if err == nil {
				_, err = s.RetryNow(ctx, r, limit)
			}
			return err
		}
	}
	return append([]calledMethod{
		{"ShowDead of 3", func(ctx context.Context) error { _, _, err := s.ShowDead(ctx, 2, 3); return err }},
		{"ShowRetried of 3", func(ctx context.Context) error { _, _, err := s.ShowRetried(ctx, 2, 3); return err }},
		{"MakeDue u", func(ctx context.Context) error { _, err := s.MakeDue(ctx, "u"); return err }},
		{"WakeHeads of all", s.WakeHeads},
		{"RetryLater of many", func(ctx context.Context) error { return s.RetryLater(ctx, attempts(0, 20)) }},
		{"RetryNow of 5", retry(5)},
		{"RetryNow of all", retry(1000)},
		resolve(store.RequestReplay, s.ReplayDead),
		resolve(store.RequestDiscard, s.DiscardDead),
		{"GiveUp of one that is parked", func(ctx context.Context) error { _, err := s.GiveUp(ctx, dead(13)); return err }},
		{"GiveUp of one of a replay", func(ctx context.Context) error { _, err := s.GiveUp(ctx, dead(6)); return err }},
		{"SettleRetried of many", func(ctx context.Context) error { return s.SettleRetried(ctx, published(30, uuid)) }},
		{"Settle of many", func(ctx context.Context) error {
			return s.Settle(ctx, published(60, uuid), []store.Dead{dead(61)})
		}},
		{"Settle of what is journaled", func(ctx context.Context) error { return s.Settle(ctx, published(9, uuid), nil) }},
		{"Park of many", func(ctx context.Context) error {
			var list []store.Parked
			for i := range 90 {
				list = append(list, parkedAt(i, "k", time.Hour))
			}
			_, err := s.Park(ctx, list)
			return err
		}},
		{"Republish", func(ctx context.Context) error {
			r, err := s.Request(ctx, 4)
			if err == nil {
				_, err = s.Republish(ctx, r, []store.Parked{parkedAt(91, "k", 0), parkedAt(92, "k", 0),
					parkedAt(111, "k", 0)})
			}
			return err
		}},
		{"AckAlarms", func(ctx context.Context) error {
			_, err := s.AckAlarms(ctx, []int64{1}, false, "ann", "")
			return err
		}},
		{"AckAlarms all", func(ctx context.Context) error { _, err := s.AckAlarms(ctx, nil, true, "ann", ""); return err }},
		{"SnapshotCatchUp", func(ctx context.Context) error { _, err := s.SnapshotCatchUp(ctx); return err }},
	}, cleaningMethods(s)...)
}
