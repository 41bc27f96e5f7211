package store_test

import (
	"context"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/store"
)

// policyMethods is the part of everyMethod that serves the breaker and the retention of dead letters.
func policyMethods(s *store.Store) []calledMethod {
	return []calledMethod{
		{"Breaker", func(ctx context.Context) error { _, err := s.Breaker(ctx, time.Minute, nil); return err }},
		{"OpenBreaker", func(ctx context.Context) error { return s.OpenBreaker(ctx, "why") }},
		{"CloseBreaker", s.CloseBreaker},
		{"Cleanable", func(ctx context.Context) error {
			_, err := s.Cleanable(ctx, time.Hour, time.Hour, time.Hour)
			return err
		}},
		{"PruneRequests", func(ctx context.Context) error { _, _, err := s.PruneRequests(ctx, time.Hour, 1); return err }},
		{"PruneDead", func(ctx context.Context) error { _, _, err := s.PruneDead(ctx, time.Hour, 1); return err }},
	}
}
