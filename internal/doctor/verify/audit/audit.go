// Package audit compares an outbox table with what the topics hold: it reads both and has the auditor of package verify
// judge. It publishes nothing: what the topics have lost it asks the relay to publish once more, when it is told to.
//
// Tested in audit_test.go, and by the command verify on real servers (cmd/cdc-relay).
package audit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/doctor/verify"
	"github.com/cdc-relay/cdc-relay/internal/store"
)

// Verdict is the outcome of an audit.
type Verdict struct {
	Rows     int `json:"rows"`     // of the range
	Expected int `json:"expected"` // of them, those that must be in a topic
	Records  int `json:"records"`  // read from the topics
	Missing  int `json:"missing"`  // pending included
	// missing, and the relay's own tables do not call them published
	Pending int `json:"pending"`
	// missing, though the journal has a place for them that the topic must still hold
	Lost       int `json:"lost"`
	Duplicated int `json:"duplicated"`
	OutOfOrder int `json:"out_of_order"`
	Different  int `json:"different"` // value, key or topic
	Misplaced  int `json:"misplaced"` // in a topic, but not where the journal has them
	Parked     int `json:"parked"`
	// stored in cdc_relay_spool until they can be sent, when the table was read; those of rows are pending
	Spooled int64 `json:"spooled"`
	Dead    int   `json:"dead"`
	// published without a known place: before the first start, or pruned from the journal
	Unjudged    int                         `json:"unjudged"`
	Expired     int                         `json:"expired"` // removed by the topic's retention or compaction
	Others      int                         `json:"others"`  // records of no row in the range
	Examples    map[verify.Finding][]string `json:"examples,omitempty"`
	Notes       []string                    `json:"notes,omitempty"`
	MissingRows []string                    `json:"missing_ids,omitempty"` // the first of those that are missing
	Repaired    *int64                      `json:"repaired,omitempty"`    // published once more, when that was asked for
}

// Left is how many rows are missing after all.
func (v *Verdict) Left() int64 {
	if v.Repaired == nil {
		return int64(v.Missing)
	}
	return int64(v.Missing) - *v.Repaired
}

// lookAgain is the pause between two looks for rows that are still to be published.
const lookAgain = 250 * time.Millisecond

// Options are how an audit goes about its work.
type Options struct {
	Rows store.AuditRange // of the table; the zero value is all of them
	Wait time.Duration    // for rows that the relay has not published yet
	Temp string           // directory of temporary files; empty: the system's
	Tell func(string)     // is shown how far it is, an empty line at the end; nil: no one is

	// Repair is asked, when the topics have lost rows, whether and how the relay shall publish them once more; nil: they
	// stay lost.
	Repair func(found *Verdict) (*Repair, error)
}

// Run reads the truth, then what the topics hold, lets the auditor compare, and has repaired what was lost.
func Run(ctx context.Context, cfg config.Config, st *store.Store, o Options) (v *Verdict, err error) {
	if o.Tell == nil {
		o.Tell = func(string) {}
	}
	reader, err := newTopicReader(ctx, cfg, st)
	if err != nil {
		return nil, err
	}
	defer reader.close()
	auditor, err := verify.NewAuditor(o.Temp)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, auditor.Close()) }()
	began, err := st.Clock(ctx)
	if err != nil {
		return nil, err
	}
	t := &truth{auditor: auditor, reader: reader, tell: o.Tell}
	if t.spooled, err = st.Spooled(ctx); err != nil {
		return nil, err
	}
	if err := t.read(ctx, cfg, st, o.Rows); err != nil {
		return nil, err
	}
	if err := t.watch(ctx, o.Wait); err != nil {
		return nil, err
	}
	found, err := auditor.Finish(reader.why, func(done int) { o.Tell(fmt.Sprintf("comparing: %d %%", done*100/256)) })
	o.Tell("")
	if err != nil {
		return nil, err
	}
	v = verdictOn(found, append(reader.said(), unseen(cfg)...))
	if v.Spooled = t.spooled.Events; v.Spooled > 0 {
		v.Notes = append(v.Notes, fmt.Sprintf("%d events, the oldest from %s, were stored in cdc_relay_spool when the "+
			"table was read: they are sent when that is possible (cdc-relay status). Pending rows may be among them: "+
			"verify again when none is left", v.Spooled, t.spooled.Oldest.UTC().Format(time.RFC3339)))
	}
	if o.Repair == nil || v.Lost == 0 {
		return v, nil
	}
	repair, err := o.Repair(v)
	if err != nil {
		return v, err
	}
	repair.until = began
	return v, repair.do(ctx, st, auditor, v)
}

// watch reads the topics, and goes on for as long as rows are awaited that nothing is recorded of.
func (t *truth) watch(ctx context.Context, patience time.Duration) error {
	deadline := time.Now().Add(patience)
	for {
		if err := t.reader.readOn(ctx, t); err != nil {
			return err
		}
		left, tooMany := t.pending.left()
		if tooMany {
			t.reader.notes = append(t.reader.notes,
				fmt.Sprintf("more than %d rows are not published yet: they were not waited for", pendingMost))
		}
		if left == 0 || tooMany || !time.Now().Before(deadline) {
			return t.reader.beginnings(ctx)
		}
		t.tell(fmt.Sprintf("waiting for %d rows that are not published yet", left))
		select {
		case <-time.After(lookAgain):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// unseen says which rows no one can compare any more, as the relay deletes them.
func unseen(cfg config.Config) []string {
	const rest = ": what the topics hold, or have lost, of those is not compared"
	switch o := cfg.Outbox; {
	case o.Retention > 0:
		return []string{fmt.Sprintf("outbox.retention is %v: rows published longer ago are deleted%s", o.Retention, rest)}
	case o.AfterPublish == config.AfterPublishDelete:
		return []string{"outbox.after_publish is delete: published rows are deleted" + rest}
	}
	return nil
}

func verdictOn(f verify.Audited, notes []string) *Verdict {
	slices.Sort(f.IDs)
	return &Verdict{
		Rows: f.Rows, Expected: f.Expected, Records: f.Records, Missing: f.Missing, Pending: f.Pending, Lost: f.Lost,
		Duplicated: f.Duplicated, OutOfOrder: f.OutOfOrder, Different: f.Different, Misplaced: f.Misplaced, Parked: f.Parked,
		Dead:     f.Dead,
		Unjudged: f.Unjudged, Expired: f.Expired, Others: f.Others, Examples: f.Examples, Notes: notes, MissingRows: f.IDs,
	}
}
