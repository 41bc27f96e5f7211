package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

var rewrite = flag.Bool("rewrite", false, "write what the methods answer and change into testdata")

// withEverything is the owner of a slot, in whose tables events are in each mixture of states.
func withEverything(t *testing.T, after string) (*harness.PG, *store.Store, store.Config) {
	t.Helper()
	pg := harness.Postgres(t)
	c := usual(t, pg)
	c.HoldDead, c.AfterPublish = true, after
	c.DeadSet, c.RetrySet = "event_type = {error_class}", "event_type = {last_error}"
	execFile(t, pg, "decoys.sql")
	s := owner(t, pg, c)
	execFile(t, pg, "everything.sql")
	noOlderTransaction(t, s)
	return pg, s, c
}

// execFile runs a file of testdata.
func execFile(t *testing.T, pg *harness.PG, name string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	must(t, "read", err)
	pg.Exec(t, string(text))
}

// Break caught: a condition, an order or a bound of a statement that is not what it was. testdata/answers.txt holds
// what each method that reads answers about events in every mixture of states, beside a neighbour who has the same
// ids in others: change it only when the answer ought to be another one (go test ./internal/store -run AnswersAsItDid
// -rewrite). Seen to fail with most of the changes that `make mutate-sql` makes to what is read.
func TestEveryReadAnswersAsItDid(t *testing.T) {
	pg, s, c := withEverything(t, store.Mark)
	own := strings.NewReplacer(strings.Fields(pg.Query(t, `SELECT concat_ws(' ', s.source, 'S', s.source + 1, 'N', slot,
 'SLOT', table_oid, 'OID') FROM cdc_relay_source s WHERE slot <> 'neighbour'`))...)
	g := openGolden(t, "answers.txt")
	for _, row := range slices.Concat(everyRead(s), manyReads(s), auditReads(s), upkeepReads(t, c)) {
		g.line(t, row.what+": "+own.Replace(short(row.read(t))))
	}
	g.line(t, "the view: "+plainIDs(pg.Query(t, `SELECT string_agg(concat_ws(' ', id, status, topic, partition, "offset",
 retry_count, last_error, error_class), ', ' ORDER BY id) FROM outbox_events_status`)))
	g.end(t)
}

var (
	uuids   = regexp.MustCompile(`00000000-0000-7000-8000-0000000000([0-9a-f]{2})`)
	encoded = regexp.MustCompile(`"MDAwMDAwMDAt[0-9A-Za-z+/=]+"`)
	moments = regexp.MustCompile(`"\d{4}-\d\d-\d\dT[^"]*"`)
	numbers = regexp.MustCompile(`#\d+`)
	chance  = regexp.MustCompile(`"(TakenLSN|SlotPID)":\d+`)
)

// short is an answer without what differs from run to run: the ids in it, in their order, where it has some.
func short(answer string) string {
	answer = encoded.ReplaceAllStringFunc(answer, func(id string) string {
		var plain []byte
		_ = json.Unmarshal([]byte(id), &plain)
		return string(plain)
	})
	answer = plainIDs(answer)
	answer = chance.ReplaceAllString(moments.ReplaceAllString(answer, "T"), `"$1":0`)
	if ids := numbers.FindAllString(answer, -1); len(ids) > 0 && answer[0] != '"' {
		return fmt.Sprintf("%d %s", len(ids), strings.Join(ids, " "))
	}
	return answer
}

// plainIDs puts #12 for uuid(12).
func plainIDs(text string) string {
	return uuids.ReplaceAllStringFunc(text, func(id string) string {
		n, _ := strconv.ParseInt(id[len(id)-2:], 16, 64)
		return fmt.Sprint("#", n)
	})
}

// golden is a file of testdata that is written, or compared line by line.
type golden struct {
	path  string
	want  []string
	lines []string
}

func openGolden(t *testing.T, name string) *golden {
	t.Helper()
	g := &golden{path: filepath.Join("testdata", name)}
	if !*rewrite {
		text, err := os.ReadFile(g.path)
		must(t, "read", err)
		g.want = strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	}
	return g
}

// line is the next line, which ends the test if it is another one.
func (g *golden) line(t *testing.T, text string) {
	t.Helper()
	g.lines = append(g.lines, text)
	if n := len(g.lines); !*rewrite && (n > len(g.want) || g.want[n-1] != text) {
		t.Fatalf("%s:%d: got\n%s\nwant\n%s", g.path, n, text, append(g.want, "nothing more")[min(n-1, len(g.want))])
	}
}

func (g *golden) end(t *testing.T) {
	t.Helper()
	if *rewrite {
		must(t, "write", os.WriteFile(g.path, []byte(strings.Join(g.lines, "\n")+"\n"), 0o644))
	} else if len(g.lines) < len(g.want) {
		t.Errorf("%s: got %d lines, want %d", g.path, len(g.lines), len(g.want))
	}
}

// manyReads are the reads that take filters, limits and cursors, with many of them.
func manyReads(s *store.Store) (list []reading) {
	add := func(what string, ask func(ctx context.Context) (any, error)) {
		list = append(list, reading{what, func(t *testing.T) string {
			t.Helper()
			answer, err := ask(t.Context())
			must(t, what, err)
			text, err := json.Marshal(answer)
			must(t, what, err)
			return string(text)
		}})
	}
	for _, row := range everyFilter() {
		f := row.filter
		for _, state := range []string{store.DeadOpen, store.DeadAny} {
			add("DeadLetters "+state+" "+row.name, func(ctx context.Context) (any, error) {
				return s.DeadLetters(ctx, f, state, "", 100)
			})
		}
		add("DeadReasons "+row.name, func(ctx context.Context) (any, error) {
			return s.DeadReasons(ctx, f, store.DeadAny)
		})
		add("ParkedKeys "+row.name, func(ctx context.Context) (any, error) {
			page, err := s.ParkedKeys(ctx, f, "", 100)
			var keys []string
			for _, k := range page.Items {
				keys = append(keys, fmt.Sprintf("%s of %d", k.ID, k.Events))
			}
			return strings.Join(keys, ", "), err
		})
		add("ParkedSum "+row.name, func(ctx context.Context) (any, error) { return s.ParkedSum(ctx, f) })
		for _, kind := range []string{store.RequestReplay, store.RequestDiscard, store.RequestRetry} {
			add("Count "+kind+" "+row.name, func(ctx context.Context) (any, error) { return s.Count(ctx, kind, f) })
		}
	}
	add("DeadLetters in pages", func(ctx context.Context) (any, error) {
		return pages(func(after string) ([]store.DeadLetter, string, error) {
			page, err := s.DeadLetters(ctx, store.Filter{}, store.DeadAny, after, 11)
			return page.Items, page.Next, err
		})
	})
	add("ParkedKeys in pages", func(ctx context.Context) (any, error) {
		return pages(func(after string) ([]store.ParkedKey, string, error) {
			page, err := s.ParkedKeys(ctx, store.Filter{}, after, 3)
			return page.Items, page.Next, err
		})
	})
	add("CatchUpRows, some", func(ctx context.Context) (any, error) { return s.CatchUpRows(ctx, 60, 5) })
	add("CountUnrecorded, some", func(ctx context.Context) (any, error) { return s.CountUnrecorded(ctx, 3) })
	add("UnrecordedSince an hour", func(ctx context.Context) (any, error) {
		return s.UnrecordedSince(ctx, time.Now().Add(-time.Hour), 100)
	})
	add("UnrecordedSince, some", func(ctx context.Context) (any, error) {
		ids, err := s.UnrecordedSince(ctx, time.Unix(0, 0), 3)
		return len(ids), err
	})
	for _, limit := range []int{3, 1000} {
		add(fmt.Sprint("LateRows of all, ", limit), func(ctx context.Context) (any, error) {
			return s.LateRows(ctx, everyID(), limit)
		})
		add(fmt.Sprint("RepublishRows of all, ", limit), func(ctx context.Context) (any, error) {
			ids := make([]string, 0, events)
			for _, id := range everyID() {
				ids = append(ids, string(id))
			}
			return s.RepublishRows(ctx, &store.Request{RequestedAt: time.Now().Add(-time.Hour), Filter: store.Filter{IDs: ids}},
				limit)
		})
	}
	for _, limit := range []int{4, 100} {
		add(fmt.Sprint("Portions of all lanes, ", limit), func(ctx context.Context) (any, error) {
			var asks []store.Ask
			for _, lane := range strings.Fields("t/k0 t/k1 t/k2 t/k3 t/f u/k0 u/k1 u/k2 u/k3 u/f") {
				topic, key, _ := strings.Cut(lane, "/")
				asks = append(asks, store.Ask{Lane: store.Lane{Topic: topic, Key: []byte(key)}})
			}
			portions, err := s.Portions(ctx, asks, limit, 1<<20)
			var said []string
			for _, p := range portions {
				line := fmt.Sprintf("%s/%s held %t more %t:", p.Lane.Topic, p.Lane.Key, p.Held, p.More)
				for _, r := range p.Rows {
					line += " " + string(r.Event.ID)
				}
				said = append(said, line)
			}
			return strings.Join(said, "; "), err
		})
	}
	add("Lookup of all", func(ctx context.Context) (any, error) { return s.Lookup(ctx, everyID()) })
	add("ParkedAmong all", func(ctx context.Context) (any, error) {
		found, err := s.ParkedAmong(ctx, sightings(everyID()))
		return len(found), err
	})
	add("DueLanes, not of t", func(ctx context.Context) (any, error) {
		lanes, _, err := s.DueLanes(ctx, 100, []string{"t"})
		return len(lanes), err
	})
	add("Breaker of an hour", func(ctx context.Context) (any, error) { return s.Breaker(ctx, time.Hour, []string{"X"}) })
	add("Breaker of nine hours", func(ctx context.Context) (any, error) { return s.Breaker(ctx, 9*time.Hour, nil) })
	add("Cleanable", func(ctx context.Context) (any, error) { return s.Cleanable(ctx, time.Hour, 5*time.Hour, time.Hour) })
	add("SeenTopics", func(ctx context.Context) (any, error) {
		topics, err := s.SeenTopics(ctx, 100)
		slices.Sort(topics)
		return topics, err
	})
	add("Memories", func(ctx context.Context) (any, error) { return s.Memories(ctx) })
	add("Alarms", func(ctx context.Context) (any, error) { return s.Alarms(ctx, false) })
	add("all Alarms", func(ctx context.Context) (any, error) { return s.Alarms(ctx, true) })
	for id := range int64(16) { // of them the neighbour's from 13 on
		add(fmt.Sprint("Request ", id), func(ctx context.Context) (any, error) {
			r, err := s.Request(ctx, id)
			if errors.Is(err, store.ErrNoRequest) {
				return "none", nil
			}
			if err == nil {
				err = s.Outcomes(ctx, r)
			}
			return r, err
		})
	}
	findReads(add, s)
	return list
}

// findReads are those that look for single events.
func findReads(add func(what string, ask func(ctx context.Context) (any, error)), s *store.Store) {
	add("Find", func(ctx context.Context) (any, error) {
		var said []string
		ids := make([]string, 0, events)
		for _, id := range everyID() {
			ids = append(ids, string(id))
		}
		found, err := s.Find(ctx, ids)
		for _, f := range found {
			line := f.ID + " " + f.State
			if f.Published != nil {
				line += " " + f.Published.Topic
			}
			if p := f.Parked; p != nil && p.Behind != nil {
				line += fmt.Sprint(" behind ", *p.Behind, " and ", p.Before)
			}
			said = append(said, line)
		}
		return strings.Join(said, "; "), err
	})
	for _, since := range []time.Duration{0, time.Hour} {
		for _, limit := range []int{5, 1000} {
			add(fmt.Sprint("OfAggregate since ", since, ", ", limit), func(ctx context.Context) (any, error) {
				return s.OfAggregate(ctx, "Order", "k2", since, limit)
			})
			add(fmt.Sprint("OfKey since ", since, ", ", limit), func(ctx context.Context) (any, error) {
				return s.OfKey(ctx, "k2", since, limit)
			})
		}
	}
}

// events is how many events everything.sql has.
const events = 132

func everyID() (ids [][]byte) {
	for i := range events {
		ids = append(ids, []byte(uuid(i)))
	}
	return ids
}

// pages asks for one page after the other.
func pages[T any](ask func(after string) ([]T, string, error)) (all [][]T, err error) {
	after := ""
	for range events {
		items, next, err := ask(after)
		if err != nil {
			return nil, err
		}
		if all = append(all, items); next == "" {
			break
		}
		after = next
	}
	return all, nil
}

// everyFilter has each field by itself.
func everyFilter() []struct {
	name   string
	filter store.Filter
} {
	key := "k1"
	return []struct {
		name   string
		filter store.Filter
	}{
		{"key", store.Filter{Key: &key}}, {"type", store.Filter{Type: "e1"}},
		{"class", store.Filter{Class: string(outbox.Blocked)}}, {"topic", store.Filter{Topic: "u"}},
		{"aggregate", store.Filter{Aggregate: "Order/k2"}}, {"older", store.Filter{OlderThan: store.Age(time.Hour)}},
		{"newer", store.Filter{NewerThan: store.Age(time.Hour)}}, {"all", store.Filter{All: true}},
		{"position", store.Filter{Position: outbox.LSN(1).String()}}, {"row", store.Filter{Position: "table/2/84"}},
		{"place", store.Filter{Position: outbox.LSN(1).String() + "/1"}},
		{"ids", store.Filter{IDs: []string{uuid(11), uuid(33), uuid(52), uuid(74), uuid(99)}}},
	}
}
