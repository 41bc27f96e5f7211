package relay

import (
	"context"
	"time"

	"github.com/cdc-relay/cdc-relay/relay/internal/halt"
)

// driftPatience bounds one look at publication and table.
const driftPatience = 5 * time.Second

// lookForDrift ends the session with a halt when the publication or the table is no longer what events come through. The
// server goes on to send keepalives then, and confirming them would lose, without a sign, every row that it leaves out. After the
// repair the table comes first: see Setup.
func (t *term) lookForDrift(ctx context.Context, s *session) {
	bounded, cancel := context.WithTimeout(ctx, driftPatience)
	defer cancel()
	owner := t.owner()
	err := t.drift(bounded, s)
	owner.heed(err)
	if stop := halt.Of(err); stop != nil && t.session.Load() == s {
		t.noteLeftOut(bounded, stop)
		s.fail(stop)
	}
}

// noteLeftOut commits that the stream may have left rows out since the last look: once the cause is repaired, the table
// comes first.
func (t *term) noteLeftOut(ctx context.Context, why *halt.Error) {
	switch why.Code {
	case halt.Publication, halt.Column, halt.OtherTable:
		if err := t.r.store.BeginCatchUp(ctx, true); err != nil {
			t.r.log.Warn().Err(err).Msg("cannot note that the stream has left rows out; the reconciler will find them")
		}
	}
}

func (t *term) drift(ctx context.Context, s *session) error {
	table, err := t.r.setup().Drift(ctx, s.state)
	if table.OIDs != nil {
		t.r.reconciler.Covers(table.OIDs)
	}
	return err
}

// repaired reports whether the cause of a session's end is gone, which was what the slot holds: then the next session may
// make a new slot.
func (r *Relay) repaired(ctx context.Context, err error) bool {
	bounded, cancel := context.WithTimeout(ctx, driftPatience)
	defer cancel()
	return r.setup().Repaired(bounded, err)
}
