package main

import "testing"

// Transactions of others that go to files hold events back. Breaks it catches: a check that says nothing of what was
// too large, or that gives advice without a cause. Seen to fail with the count of transactions left out of account.
func TestCheckTellsOfTransactionsThatWereTooLargeToDecode(t *testing.T) {
	t.Parallel()
	s := newServices(t, orderTopic)
	cdcRelay(t, s.environ, "init").want(t, exitDone, nil, nil)
	cdcRelay(t, s.environ, "check").want(t, exitDone, []string{
		"ok    logical_decoding_work_mem: 64MB, and no transaction was larger so far"}, nil)
	s.pg.Exec(t, `ALTER DATABASE `+s.pg.Database+` SET logical_decoding_work_mem = '64kB';
 CREATE TABLE imported AS SELECT md5(n::text) FROM generate_series(1, 5000) n;
 INSERT INTO imported SELECT * FROM imported`)
	s.pg.Exec(t, `SELECT count(*) FROM pg_logical_slot_get_binary_changes(
 (SELECT slot_name FROM pg_replication_slots WHERE database = current_database()), NULL, NULL,
 'proto_version', '1', 'publication_names', 'cdc_relay')`)
	cdcRelay(t, s.environ, "check").want(t, exitDone, []string{
		"warn  logical_decoding_work_mem: 64kB; ", " transactions of any tables were larger, and ",
		"SET logical_decoding_work_mem = '1GB'", "pg_stat_reset_replication_slot('"}, nil)
}
