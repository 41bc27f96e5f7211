package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store"
)

// Bounds of what is looked at, and shown, of several outboxes.
const (
	mostOutboxes = 200
	mostNamed    = 20
)

// outboxes looks at each table that outbox.tables chooses. What is right with all of them is one line. The first one
// that fits stands for all where the relay's own tables depend on what they have in common.
func (e *postgresExam) outboxes() error {
	all, err := e.store.EachTable(e.ctx)
	if err != nil {
		e.add(Fail, "outboxes "+e.cfg.Outbox.Tables, err.Error(), "create a table that fits, or correct outbox.tables")
		return nil
	}
	root, cfg, report := e.store, e.cfg, e.report
	var first store.Outbox
	var lacking map[bool][]store.Grant
	bad := 0
	for _, one := range all[:min(len(all), mostOutboxes)] {
		found := &Report{}
		e.table, e.lacking = store.Outbox{}, nil
		e.store, e.report, e.cfg.Outbox = one, found, ofTable(cfg.Outbox, one.Table())
		e.each(append(e.ofOutbox(), e.published))
		if first.OID == 0 {
			first, lacking = e.table, e.lacking
		} else if why := e.table.Beside(first); why != "" && e.table.OID != 0 {
			found.add(Fail, "outbox "+e.cfg.Outbox.Table, why,
				"give all outboxes of the slot one type, or correct outbox.tables")
		}
		wrong := slices.DeleteFunc(found.wrong(), func(f Finding) bool { return slices.Contains(report.Checks, f) })
		if bad += min(len(wrong), 1); bad <= mostNamed {
			report.Checks = append(report.Checks, wrong...)
		}
	}
	e.store, e.report, e.cfg = root, report, cfg
	e.table, e.lacking = first, lacking
	e.saySeveral(len(all), bad)
	return nil
}

func (e *postgresExam) saySeveral(all, bad int) {
	what := "outboxes " + e.cfg.Outbox.Tables
	if all > mostOutboxes {
		e.add(Warn, what, fmt.Sprintf("%d tables fit; the first %d were checked", all, mostOutboxes), "")
	}
	switch {
	case bad > mostNamed:
		e.add(Fail, what, fmt.Sprintf("%d tables have problems; those of the first %d are shown", bad, mostNamed),
			"fix these, and check again")
	case bad == 0:
		e.add(OK, what, fmt.Sprintf("%d tables fit, and have the columns that are mapped; ids are %s",
			all, e.table.IDType), "")
	}
}

// ofTable is the configuration of one of several outboxes.
func ofTable(c config.Outbox, table store.Named) config.Outbox {
	c.Table, c.Tables = config.JoinTable(table.Schema, table.Name), ""
	return c
}

// wrong are the findings that are not OK.
func (r *Report) wrong() (list []Finding) {
	for _, f := range r.Checks {
		if f.Level != OK {
			list = append(list, f)
		}
	}
	return list
}

// published looks what the publication leaves out of a table that it has. Which tables it has is severalPublished's.
func (e *postgresExam) published() error {
	var has bool
	err := e.row(`SELECT EXISTS (SELECT FROM pg_publication p JOIN pg_publication_rel r ON r.prpubid = p.oid
		WHERE p.pubname = $1 AND r.prrelid = $2)`, []any{e.cfg.Postgres.Publication, e.table.OID}, &has)
	if err != nil || !has {
		return err
	}
	return e.publication()
}

// severalMemories says whose what relays have recorded of the tables is.
func (e *postgresExam) severalMemories() error {
	if e.table.OID == 0 || len(e.lacking) > 0 {
		return nil // said already
	}
	list, err := e.fitting()
	if err != nil {
		return err
	}
	memories, err := e.store.MemoriesOf(e.ctx, list)
	if err != nil || len(memories) == 0 {
		return err
	}
	const name = "the relay's memory"
	own := map[uint32]bool{}
	for _, m := range memories {
		own[m.TableOID] = own[m.TableOID] || m.Slot == e.cfg.Postgres.Slot
		if m.Slot == e.cfg.Postgres.Slot && m.SystemID != "" && e.systemID != "" && m.SystemID != e.systemID {
			e.add(Fail, name, fmt.Sprintf("is of server %s, and this is server %s", m.SystemID, e.systemID),
				"correct postgres.url")
			return nil
		}
	}
	others := slices.DeleteFunc(memories, func(m store.Memory) bool {
		return own[m.TableOID] || !slices.ContainsFunc(list, func(n store.Named) bool { return n.OID == m.TableOID })
	})
	if len(others) == 0 {
		e.add(OK, name, "is of this slot and server", "")
		return nil
	}
	e.otherMemories(name, others)
	return nil
}

// fitting are the tables that outbox.tables chooses.
func (e *postgresExam) fitting() ([]store.Named, error) {
	schema, table := config.SplitTable(e.cfg.Outbox.Tables)
	return e.store.Outboxes(e.ctx, outbox.Pattern{Schema: schema, Table: table}, e.cfg.Postgres.Publication)
}

// severalPublished looks which of the tables the publication has.
func (e *postgresExam) severalPublished() error {
	name := e.cfg.Postgres.Publication
	list, err := e.fitting()
	if err != nil || len(list) == 0 {
		return err
	}
	var lacks []string
	for _, t := range list {
		if !t.Published {
			lacks = append(lacks, t.SQL())
		}
	}
	what := "publication " + name
	switch {
	case len(lacks) == 0:
		e.add(OK, what, fmt.Sprintf("publishes inserts of all %d outboxes", len(list)), "")
	case len(lacks) == len(list):
		e.add(Fail, what, "publishes none of the outboxes, or does not exist",
			e.byInit("cdc-relay init creates it if it does not exist; else ALTER PUBLICATION "+quoteName(name)+
				" ADD TABLE …; as its owner"))
	default:
		shown := lacks[:min(len(lacks), mostNamed)]
		more := ""
		if n := len(lacks) - len(shown); n > 0 {
			more = fmt.Sprintf(" and %d more", n)
		}
		e.add(Warn, what, fmt.Sprintf("%d of %d outboxes are not in it, so their rows are not published: %s%s", len(lacks),
			len(list), strings.Join(shown, ", "), more), store.AddToPublication(name, shown)+
			"; (as the owner of the publication and the tables)")
	}
	return nil
}
