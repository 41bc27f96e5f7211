package store_test

import (
	"context"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store"
)

// requestMethods is the part of everyMethod that serves requests and lists.
func requestMethods(s *store.Store) []calledMethod {
	r := &store.Request{}
	next := func(ctx context.Context) (err error) { r, err = s.NextRequest(ctx); return err }
	return []calledMethod{
		{"EditDead", func(ctx context.Context) error {
			_, err := s.EditDead(ctx, store.Edit{ID: uuid(4), Payload: []byte(`{}`), Who: "ann"})
			return err
		}},
		{"EditAll", func(ctx context.Context) error {
			_, err := s.EditAll(ctx, store.EditAll{Filter: store.Filter{IDs: []string{uuid(4)}}, Who: "ann",
				Patch: store.Patch{Payload: []byte(`{"edited": 2}`)}}, store.DeadCursor{}, 10)
			return err
		}},
		{"AddRequest", func(ctx context.Context) error {
			_, err := s.AddRequest(ctx, store.RequestReplay, store.Filter{All: true}, "a", "b")
			return err
		}},
		{"NextRequest", next},
		{"StartRequest", func(ctx context.Context) error { return s.StartRequest(ctx, r) }},
		{"ReplayDead", func(ctx context.Context) error { _, err := s.ReplayDead(ctx, r, store.DeadCursor{}, 1); return err }},
		{"Request", func(ctx context.Context) error { _, err := s.Request(ctx, r.ID); return err }},
		{"Outcomes", func(ctx context.Context) error {
			return s.Outcomes(ctx, &store.Request{ID: r.ID, Kind: store.RequestReplay})
		}},
		{"SettleRetried of a replay", func(ctx context.Context) error {
			return s.SettleRetried(ctx, published(1, func(int) string { return uuid(4) }))
		}},
		{"DiscardDead", func(ctx context.Context) error {
			_, err := s.DiscardDead(ctx, r, store.DeadCursor{}, 1)
			return err
		}},
		{"Count", func(ctx context.Context) error {
			_, err := s.Count(ctx, store.RequestRetry, store.Filter{Topic: "t"})
			return err
		}},
		{"CountUntil", func(ctx context.Context) error {
			_, _, err := s.CountUntil(ctx, store.RequestReplay, store.Filter{All: true})
			return err
		}},
		{"DeadLetters", func(ctx context.Context) error {
			_, err := s.DeadLetters(ctx, store.Filter{}, store.DeadAny, "", 1)
			return err
		}},
		{"DeadReasons", func(ctx context.Context) error {
			_, err := s.DeadReasons(ctx, store.Filter{}, store.DeadAny)
			return err
		}},
		{"DeadLetter", func(ctx context.Context) error { _, err := s.DeadLetter(ctx, uuid(4)); return err }},
		{"ParkedKeys", func(ctx context.Context) error { _, err := s.ParkedKeys(ctx, store.Filter{}, "", 1); return err }},
		{"ParkedSum", func(ctx context.Context) error { _, err := s.ParkedSum(ctx, store.Filter{}); return err }},
		{"RetryNow", func(ctx context.Context) error {
			retry := *r
			retry.Kind = store.RequestRetry
			_, err := s.RetryNow(ctx, &retry, 1)
			return err
		}},
		{"RepublishRows", func(ctx context.Context) error {
			_, err := s.RepublishRows(ctx, &store.Request{ID: r.ID, RequestedAt: time.Now(),
				Filter: store.Filter{IDs: []string{uuid(4)}}}, 1)
			return err
		}},
		{"Republish", func(ctx context.Context) error {
			_, err := s.Republish(ctx, r, []store.Parked{parkedAt(4, "k", 0)})
			return err
		}},
		{"NoteRequest", func(ctx context.Context) error { return s.NoteRequest(ctx, r.ID, 1, 1) }},
		{"Find", func(ctx context.Context) error { _, err := s.Find(ctx, []string{uuid(4)}); return err }},
		{"Locate", func(ctx context.Context) error {
			_, err := s.Locate(ctx, []string{uuid(4)}, nil)
			return err
		}},
		{"OfAggregate", func(ctx context.Context) error {
			_, err := s.OfAggregate(ctx, "order", "1", time.Hour, 1)
			return err
		}},
		{"OfKey", func(ctx context.Context) error { _, err := s.OfKey(ctx, "1", time.Hour, 1); return err }},
		{"InitLacks", func(ctx context.Context) error { _, _, err := s.InitLacks(ctx, "test"); return err }},
		{"RaiseAlarm", func(ctx context.Context) error { return s.RaiseAlarm(ctx, alarmOf("k", "t", time.Now())) }},
		{"Alarms", func(ctx context.Context) error { _, err := s.Alarms(ctx, true); return err }},
		{"AckAlarms", func(ctx context.Context) error { _, err := s.AckAlarms(ctx, nil, true, "ann", "seen"); return err }},
		{"ChosenTopics", func(ctx context.Context) error {
			_, _, err := s.ChosenTopics(ctx, []outbox.Part{{Column: "aggregate_type"}}, nil, 1)
			return err
		}},
		{"SeenTopics", func(ctx context.Context) error { _, err := s.SeenTopics(ctx, 1); return err }},
		{"Sources", func(ctx context.Context) error { _, err := s.Sources(ctx); return err }},
		{"AuditRows", func(ctx context.Context) error {
			return s.AuditRows(ctx, store.AuditRange{}, []string{"event_type"}, func(*store.AuditRow) error { return nil })
		}},
		{"SetPause", func(ctx context.Context) error { _, err := s.SetPause(ctx, r); return err }},
		{"Paused", func(ctx context.Context) error { _, err := s.Paused(ctx); return err }},
		{"FinishRequest", func(ctx context.Context) error { return s.FinishRequest(ctx, r.ID, "") }},
	}
}
