package relay

import (
	"context"
	"fmt"
	"strings"

	"github.com/cdc-relay/cdc-relay/relay/internal/halt"
	"github.com/cdc-relay/cdc-relay/store"
)

// What a server refuses whenever it is asked, seen before anything is made for it where that is possible.

// CheckExpressions asks the server whether it takes what the configuration puts into SQL. Each of these statements would fail
// for ever, some of them beside the stream, where nobody waits for them. It returns a *Halt that names the keys.
func (s Setup) CheckExpressions(ctx context.Context) error {
	err := s.Store.CheckExpressions(ctx)
	if err == nil {
		return nil
	}
	if store.Classify(err) == store.Retry { // somebody has the outbox locked; the stream needs no lock on it
		s.Logger.Warn().Err(err).Msg("cannot have outbox.mark_set, published_when and order_by checked now; the next session's start does")
		return nil
	}
	return explainStore(err)
}

// CreateTables makes the outbox, if there is none, and the relay's own tables and view. It returns a *Halt as Prepare does.
func (s Setup) CreateTables(ctx context.Context) error {
	if err := s.Store.Migrate(ctx); err != nil {
		return explainStore(err)
	}
	return nil
}

// CanDecode returns a *Halt for a server that can give out no stream. It makes nothing.
func (s Setup) CanDecode(ctx context.Context) error {
	slot, err := s.Store.Slot(ctx)
	if err != nil {
		return explainStore(err)
	}
	return decodes(slot)
}

func decodes(slot store.SlotStatus) error {
	if slot.TooLowWALLevel == "" {
		return nil
	}
	return halt.NoDecoding(fmt.Sprintf("the server's wal_level is %s: it writes too little to decode events from", slot.TooLowWALLevel), nil)
}

// refusedExpressions is the halt for expressions that Postgres does not take.
func refusedExpressions(refused []*store.ExpressionError, cause error) *halt.Error {
	var reasons, fixes []string
	for _, e := range refused {
		reasons, fixes = append(reasons, e.Error()), append(fixes, e.Fix)
	}
	return &halt.Error{Code: halt.Setup, Reason: strings.Join(reasons, "; "), Risk: halt.RiskWAL, Cause: cause,
		Remedy: strings.Join(fixes, "; ") + "; cdc-relay check says whether Postgres takes it, then start the relay again"}
}
