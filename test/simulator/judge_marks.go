package simulator

import "github.com/cdc-relay/cdc-relay/config"

// J15: which rows are marked.

// judgeMarked fails if a row is marked whose event is not recorded.
func (w *world) judgeMarked(t *tables, r *row) {
	if !w.unjudged && !w.server.isTerminal(r) {
		w.violate("p%d marks %s as published, and it is neither journaled nor parked nor dead", t.p.number, r.name())
	}
}

// unmarked is a row that is published and not marked, nil if there is none or rows are not marked. The marks that a
// crash of the server has forgotten are made when the next event is journaled, which may not come.
func (w *world) unmarked() *row {
	if w.profile.config.Outbox.AfterPublish != config.AfterPublishMark || w.counts.ServerCrashes > 0 {
		return nil
	}
	for r := range w.server.rows() {
		if !r.table.dropped && r.visible && !r.deleted && !r.marked && w.server.isJournaled(r) {
			return r
		}
	}
	return nil
}
