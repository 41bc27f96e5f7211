package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/access/login"
	"github.com/cdc-relay/cdc-relay/internal/run/halt"
	"github.com/cdc-relay/cdc-relay/internal/store"
)

// What a server refuses whenever it is asked, seen before anything is made for it where that is possible.

// CheckExpressions asks the server whether it takes what the configuration puts into SQL. Each of these statements
// would fail forever, some of them beside the stream, where no one waits for them. It returns a *halt.Error that names
// the keys.
func (s Setup) CheckExpressions(ctx context.Context) error {
	err := s.Store.CheckExpressions(ctx)
	if err == nil {
		return nil
	}
	if store.Classify(err) == store.Retry { // someone has the outbox locked; the stream needs no lock on it
		s.Logger.Warn().Err(err).Msg("cannot have outbox.mark_set, published_when and order_by checked now; the next " +
			"session's start does")
		return nil
	}
	return explainStore(err)
}

// CreateTables makes the outbox, if there is none, and the relay's own tables and view. It returns a *halt.Error as
// Prepare does.
func (s Setup) CreateTables(ctx context.Context) error {
	if err := s.Store.Migrate(ctx); err != nil {
		return explainStore(err)
	}
	return nil
}

// CanDecode returns a *halt.Error for a server that can give out no stream. It makes nothing.
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
	reason := fmt.Sprintf("the server's wal_level is %s: it writes too little to decode events from", slot.TooLowWALLevel)
	return halt.NoDecoding(reason, nil)
}

// refusedExpressions is the halt for expressions that Postgres does not take.
func refusedExpressions(refused []*store.ExpressionError, cause error) *halt.Error {
	var reasons, fixes []string
	for _, e := range refused {
		reasons, fixes = append(reasons, e.Error()), append(fixes, e.Fix)
	}
	return &halt.Error{Code: halt.Setup, Reason: strings.Join(reasons, "; "), Risk: halt.RiskWAL, Cause: cause,
		Remedy: strings.Join(fixes, "; ") + "; try it with cdc-relay check, then start the relay again"}
}

// readOnly is the halt for a standby.
func readOnly(cause error) *halt.Error {
	return &halt.Error{Code: halt.ReadOnly, Cause: cause,
		Reason: "the server that postgres.url reaches is a standby: nothing can be recorded there",
		Risk:   halt.RiskWAL,
		Remedy: "point postgres.url and postgres.replication_url at the primary, or list all hosts and add " +
			"target_session_attrs=read-write; after a promotion it passes by itself"}
}

// explainTable is explainStore for the look at the outbox itself: when the catalog could be read and the table is
// there, what is wrong is one of its columns, and the error says which and how to repair it.
func explainTable(err error) error {
	_, isHidden := errors.AsType[*store.HiddenError](err)
	if h, is := errors.AsType[*halt.Error](err); is {
		return h
	}
	if isHidden || errors.Is(err, store.ErrNoOutbox) || store.Classify(err) != store.Unclassified || login.Of(err) != nil {
		return explainStore(err)
	}
	if errors.Is(err, store.ErrInherited) {
		return &halt.Error{Code: halt.Setup, Reason: err.Error(), Risk: halt.RiskWAL, Cause: err,
			Remedy: "take the table out of the outbox's inheritance as said; the relay then continues by itself"}
	}
	return halt.MissingColumn(err)
}

// explainStore turns what a new attempt cannot cure into a halt.
func explainStore(err error) error {
	if h := halt.Refused(err); h != nil {
		return h
	}
	if login.Of(err) != nil { // it passes
		return err
	}
	refused := store.ExpressionErrors(err)
	hidden, isHidden := errors.AsType[*store.HiddenError](err)
	switch {
	case isHidden:
		return &halt.Error{Code: halt.Setup, Reason: hidden.What, Risk: halt.RiskWAL, Cause: err, Remedy: hidden.Repair}
	case len(refused) > 0:
		return refusedExpressions(refused, err)
	case errors.Is(err, store.ErrNoOutbox):
		return &halt.Error{Code: halt.NotInitialised, Reason: err.Error(), Risk: halt.RiskWAL, Cause: err,
			Remedy: "run cdc-relay init, or correct outbox.table or postgres.url"}
	case store.Classify(err) == store.FindPrimary:
		return readOnly(err)
	case store.Classify(err) == store.Setup,
		store.Classify(err) == store.Unclassified && !errors.Is(err, context.Canceled):
		return &halt.Error{Code: halt.Setup, Reason: err.Error(), Risk: halt.RiskWAL, Cause: err,
			Remedy: "run cdc-relay check: it names what is missing and the statement that fixes it"}
	}
	return err
}
