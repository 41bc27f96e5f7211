package check

import (
	"fmt"

	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/replication"
)

// decoding checks for transactions, of any session, that were too large for the memory of the slot's walsender. It
// then writes their changes to files, and reads them back at the commit; events behind one wait for both.
func (e *postgresExam) decoding() error {
	const name = "logical_decoding_work_mem"
	value := "not known" // the replication connection's trouble is told of by its own check
	if set, err := replication.Setting(e.ctx, relay.ReplicationConfig(e.cfg), name); err == nil {
		value = set
	}
	w, err := e.store.Walsender(e.ctx, 0)
	if err != nil {
		return err
	}
	if w.SpilledTransactions == 0 {
		e.add(OK, name, value+", and no transaction was larger so far", "")
		return nil
	}
	e.add(Warn, name, fmt.Sprintf("%s; %d transactions of any tables were larger, and %s of their changes went to files: "+
		"events behind them waited", value, w.SpilledTransactions, bytesOf(w.SpilledBytes)),
		fmt.Sprintf("commit imports in portions, or give the stream more memory: ALTER ROLE <the stream's> SET %s = '1GB'; "+
			"and restart the relay (docs/operations.md, Large transactions of others); SELECT "+
			"pg_stat_reset_replication_slot('%s'); counts from now", name, e.cfg.Postgres.Slot))
	return nil
}
