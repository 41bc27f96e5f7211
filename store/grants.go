package store

import (
	"strings"
)

// GrantsSQL is what the SQL side's role needs, and no more, once the tables and the publication exist: reading the
// outbox and updating the columns that a mark sets, and reading and writing the relay's own tables. The stream's role
// needs LOGIN REPLICATION and nothing of this.
func (s *Store) GrantsSQL(o Outbox, role string) []string {
	to := " TO " + quote(role)
	var list []string
	seen := map[string]bool{}
	for _, name := range []string{s.config.Schema, o.Schema, s.names.dlqSchema} {
		if !seen[name] {
			seen[name] = true
			list = append(list, "GRANT USAGE ON SCHEMA "+quote(name)+to)
		}
	}
	n := s.names
	own := []string{n.source, n.epoch, n.state, n.journal, n.batch, n.parked, n.catchUp, n.offset, n.request, n.dlq}
	list = append(list,
		"GRANT SELECT ON "+strings.Join([]string{n.outbox, n.view, n.version}, ", ")+to,
		"GRANT SELECT, INSERT, UPDATE, DELETE ON "+strings.Join(own, ", ")+to)
	var marked []string
	for _, column := range o.Columns {
		if o.MarkSet != "" && assigns(o.MarkSet, column) {
			marked = append(marked, quote(column))
		}
	}
	if s.config.AfterPublish == Delete {
		// FOR UPDATE, which skips rows that others hold, asks for UPDATE of a column.
		list = append(list, "GRANT DELETE, UPDATE ("+quote(s.config.Columns.ID)+") ON "+n.outbox+to)
	}
	if len(marked) > 0 {
		list = append(list, "GRANT UPDATE ("+strings.Join(marked, ", ")+") ON "+n.outbox+to)
	}
	return list
}
