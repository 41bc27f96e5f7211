package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/access/login"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/replication"
)

const (
	oldestPostgres   = 14
	failoverPostgres = 17              // standbys can copy logical slots
	clockDifference  = time.Second     // more between server and this machine is worth a warning
	longTransaction  = 5 * time.Minute // a transaction that runs longer holds up the creation of a slot
)

// examinePostgres looks at the server, then at what the relay owns in it.
func examinePostgres(ctx context.Context, cfg config.Config, r *Report) {
	r.Checks = append(r.Checks, Encryption(cfg)...)
	conn, err := store.Connect(ctx, relay.StoreConfig(cfg))
	if err != nil {
		r.add(Fail, "postgres", err.Error(),
			remedy(err, "check postgres.url, the password, pg_hba.conf and that the server runs"))
		return
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	st, err := store.Open(ctx, relay.StoreConfig(cfg))
	if err != nil {
		r.add(Fail, "postgres", err.Error(), "correct the postgres and outbox sections of the configuration")
		return
	}
	defer st.Close()
	e := &postgresExam{ctx: ctx, cfg: cfg, conn: conn, store: st, report: r}
	looks := []func() error{e.server, e.encoding, e.service, e.clock, e.walLevel, e.capacity, e.walLimit, e.standbys,
		e.replicationRole}
	if cfg.Outbox.Tables == "" {
		looks = append(looks, e.ofOutbox()...)
		looks = append(looks, e.relayTables, e.memory, e.publication, e.slot, e.decoding)
	} else {
		looks = append(looks, e.outboxes, e.relayTables, e.severalMemories, e.severalPublished, e.slot, e.decoding)
	}
	e.each(looks)
}

// ofOutbox are the looks at an outbox, from its schema to what the role may do with it.
func (e *postgresExam) ofOutbox() []func() error {
	return []func() error{e.schemas, e.outbox, e.expressions, e.identity, e.replicaIdentity, e.indexes, e.privileges}
}

// each looks at one thing after the other, as long as there is a connection.
func (e *postgresExam) each(looks []func() error) {
	for _, look := range looks {
		if err := look(); err != nil {
			e.add(Fail, "postgres", err.Error(), "see the error; the checks after this one were tried all the same")
			if e.conn.IsClosed() {
				return
			}
		}
	}
}

// remedy returns the fix for a refused login, or the general advice.
func remedy(err error, general string) string {
	if refused := login.Of(err); refused != nil {
		return refused.Remedy
	}
	return general
}

// postgresExam is one examination. Each method looks at one thing; its error is trouble with looking.
type postgresExam struct {
	ctx    context.Context
	cfg    config.Config
	conn   *pgx.Conn
	store  *store.Store
	report *Report

	version  int    // server_version_num
	systemID string // by SQL
	database string
	managed  managed                // the zero value: by no one that is known
	table    store.Outbox           // OID 0: there is none, or it does not fit
	lacking  map[bool][]store.Grant // that the role does not have, on the outbox and on what is the relay's own
}

func (e *postgresExam) add(l Level, name, text, fix string) { e.report.add(l, name, text, fix) }

func (e *postgresExam) row(query string, args []any, into ...any) error {
	err := store.ReadOnly(e.ctx, e.conn, func(tx pgx.Tx) error {
		return tx.QueryRow(e.ctx, query, args...).Scan(into...)
	})
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("ask the server (%.60s…): %w", query, err)
	}
	return err
}

func (e *postgresExam) setting(name string) (value string, err error) {
	err = e.row("SELECT current_setting($1, true)", []any{name}, &value)
	return value, err
}

func (e *postgresExam) server() error {
	var text string
	var standby bool
	err := e.row("SELECT current_setting('server_version_num')::int, current_setting('server_version'), "+
		"pg_is_in_recovery(), (SELECT system_identifier::text FROM pg_control_system()), current_database()::text",
		nil, &e.version, &text, &standby, &e.systemID, &e.database)
	if err != nil {
		return err
	}
	if e.version < oldestPostgres*10_000 {
		e.add(Fail, "server version", text, fmt.Sprintf("upgrade to PostgreSQL %d or newer", oldestPostgres))
	} else {
		e.add(OK, "server version", text, "")
	}
	if standby {
		e.add(Fail, "primary", "this server is a standby (in recovery)",
			"point postgres.url and postgres.replication_url at the primary, or add target_session_attrs=read-write")
	} else {
		e.add(OK, "primary", "the server is not a standby", "")
	}
	return nil
}

// encoding says what a database's encoding means for its events.
func (e *postgresExam) encoding() error {
	value, err := e.setting("server_encoding")
	switch {
	case err != nil:
		return err
	case value == "UTF8":
		e.add(OK, "encoding", value, "")
	case value == "SQL_ASCII":
		e.add(Warn, "encoding", "SQL_ASCII: text is bytes of any encoding, and published as they are; headers that are not "+
			"UTF-8, and with message.format envelope or cloudevents any such text, make a dead letter",
			"have producers write UTF-8, or move to a database with ENCODING 'UTF8'")
	default:
		e.add(OK, "encoding", value+": events are published in UTF-8; text without an equivalent there halts the relay "+
			"(invalid_encoding), and what the relay writes about events is transliterated", "")
	}
	return nil
}

func (e *postgresExam) clock() error {
	var micros int64 // a time as text has the form of the database's datestyle
	before := time.Now()
	if err := e.row("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint", nil, &micros); err != nil {
		return err
	}
	ours := before.Add(time.Since(before) / 2)
	if difference := time.UnixMicro(micros).Sub(ours).Abs(); difference > clockDifference {
		e.add(Warn, "clocks",
			fmt.Sprintf("the server's and this machine's differ by %s: latencies in metrics are off by that",
				difference.Round(time.Millisecond)), "synchronise both with NTP")
	} else {
		e.add(OK, "clocks", "server and this machine agree within "+clockDifference.String(), "")
	}
	return nil
}

func (e *postgresExam) walLevel() error {
	value, err := e.setting("wal_level")
	if err != nil {
		return err
	}
	if value != "logical" && e.version >= 190_000 {
		e.add(OK, "wal_level", value+": PostgreSQL 19 raises it while there are logical slots", "")
		return nil
	}
	if value != "logical" {
		e.add(Fail, "wal_level", value, cmp.Or(e.managed.walLevel,
			"ALTER SYSTEM SET wal_level = 'logical'; and restart Postgres (managed services have a parameter for it, such as "+
				"rds.logical_replication = 1)"))
		return nil
	}
	e.add(OK, "wal_level", value, "")
	return nil
}

// capacity looks whether a slot and a sender are left for us, or are ours already.
func (e *postgresExam) capacity() error {
	var slots, usedSlots, senders, usedSenders int
	var exists, active bool
	err := e.row(`SELECT current_setting('max_replication_slots')::int, (SELECT count(*) FROM pg_replication_slots),
		current_setting('max_wal_senders')::int, (SELECT count(*) FROM pg_stat_replication),
		EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = $1 AND database = current_database()),
		EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = $1 AND database = current_database() AND active)`,
		[]any{e.cfg.Postgres.Slot}, &slots, &usedSlots, &senders, &usedSenders, &exists, &active)
	if err != nil {
		return err
	}
	e.room("max_replication_slots", slots, usedSlots, exists)
	e.room("max_wal_senders", senders, usedSenders, active)
	return nil
}

func (e *postgresExam) room(setting string, most, used int, ours bool) {
	text := fmt.Sprintf("%d of %d in use", used, most)
	switch {
	case ours:
		e.add(OK, setting, text+", one of them ours", "")
	case used >= most:
		const drop = ", or ask the owners of unused ones to remove them"
		e.add(Fail, setting, text, e.setTo(
			fmt.Sprintf("ALTER SYSTEM SET %s = %d; and restart Postgres", setting, most+4)+drop, drop))
	default:
		e.add(OK, setting, text, "")
	}
}

func (e *postgresExam) walLimit() error {
	value, err := e.setting("max_slot_wal_keep_size")
	if err != nil {
		return err
	}
	if value == "-1" {
		e.add(Warn, "max_slot_wal_keep_size", "-1: while the relay is down its slot keeps WAL until the disk is full",
			e.setTo("ALTER SYSTEM SET max_slot_wal_keep_size = '50GB'; (what the disk can spare) and SELECT pg_reload_conf();",
				"; otherwise alert on cdc_slot_retained_wal_bytes"))
		return nil
	}
	budget := e.cfg.WAL.Budget
	var bytes int64
	err = e.conn.QueryRow(e.ctx, "SELECT pg_size_bytes(current_setting('max_slot_wal_keep_size'))").Scan(&bytes)
	if err != nil {
		return err
	}
	if config.ByteSize(bytes) < budgetTimes*budget {
		e.add(Warn, "max_slot_wal_keep_size", fmt.Sprintf("%s: less than %d times wal.budget (%v): the server may drop the "+
			"slot before the relay has stored what it keeps", value, budgetTimes, budget),
			e.setTo(fmt.Sprintf("ALTER SYSTEM SET max_slot_wal_keep_size = '%dMB'; and SELECT pg_reload_conf(); or a smaller "+
				"wal.budget", budgetTimes*budget>>20), "; or a smaller wal.budget"))
		return nil
	}
	e.add(OK, "max_slot_wal_keep_size", value, "")
	return nil
}

// budgetTimes is how many times wal.budget the server keeps at least: it removes WAL at checkpoints only.
const budgetTimes = 4

// setTo returns the advice to change a setting by SQL, or otherwise for services that
// don't allow it.
func (e *postgresExam) setTo(statement, otherwise string) string {
	if e.managed.name != "" {
		return fmt.Sprintf(noALTER, e.managed.name) + otherwise
	}
	return statement
}

// replicationRole connects as the stream will: that proves the role, pg_hba.conf and that no pooler is between.
func (e *postgresExam) replicationRole() error {
	system, err := replication.Identify(e.ctx, relay.ReplicationConfig(e.cfg))
	if err != nil {
		fix := remedy(err, "postgres.replication_url must reach Postgres directly, not a pooler")
		if refused := login.Of(err); refused != nil && refused.NoReplication != "" && e.managed.name != "" {
			fix = e.managed.grant(refused.NoReplication)
		}
		e.add(Fail, "replication connection", err.Error(), fix)
		return nil
	}
	if e.systemID != "" && system.ID != e.systemID {
		e.add(Fail, "replication connection",
			fmt.Sprintf("it reaches system %s, and postgres.url reaches system %s", system.ID, e.systemID),
			"point postgres.url and postgres.replication_url at the same server")
		return nil
	}
	e.add(OK, "replication connection", fmt.Sprintf("granted by system %s, timeline %d", system.ID, system.Timeline), "")
	return nil
}

func (e *postgresExam) slot() error {
	slot, err := e.store.Slot(e.ctx)
	if err != nil {
		return err
	}
	name, named := "slot "+e.cfg.Postgres.Slot, ""
	if e.cfg.Postgres.Slot == store.DefaultSlot(e.database) {
		named = "named for the database; "
	}
	if why := slot.Mismatch(); why != "" {
		e.add(Fail, name, why, store.OtherSlotName)
		return nil
	}
	switch {
	case !slot.Exists:
		e.add(Warn, name, named+"does not exist yet",
			"cdc-relay init creates it, and so does the first start of cdc-relay run")
		return e.longTransactions()
	case slot.WALStatus == "lost":
		return e.lostSlot(name, slot)
	case slot.Recovery && slot.Synced && slot.Temporary:
		e.add(Warn, name, "this standby's copy is temporary: a promotion now would lose it",
			"wait until the relay has confirmed events since the standby began to copy; if that does not help, read the "+
				"standby's log (sync_replication_slots, hot_standby_feedback, primary_slot_name)")
	case slot.Recovery && slot.Synced:
		e.add(OK, name, fmt.Sprintf("a lasting copy of the primary's, confirmed %s: it survives a promotion", slot.Confirmed),
			"")
	case slot.WALStatus == "unreserved":
		e.add(Warn, name, "is about to be lost: the server may remove its WAL at the next checkpoint",
			"start cdc-relay run now, or raise max_slot_wal_keep_size")
	default:
		state := "not in use"
		if slot.Active {
			state = fmt.Sprintf("in use by backend %d", slot.ActivePID)
		}
		e.add(OK, name, fmt.Sprintf("%s%s, confirmed %s, keeps %s of WAL",
			named, state, slot.Confirmed, bytesOf(slot.RetainedBytes)), "")
		if e.version >= failoverPostgres*10_000 && !slot.Failover {
			e.add(Warn, name, "was made without failover: standbys do not copy it, and a promotion loses it",
				"stop the relay, then on a replication connection: ALTER_REPLICATION_SLOT "+e.cfg.Postgres.Slot+" (FAILOVER true);")
		}
	}
	return nil
}

// lostSlot advises to drop a slot only where the relay's tables name it as theirs; the start does it by itself then.
func (e *postgresExam) lostSlot(name string, slot store.SlotStatus) error {
	fix := "if it is not this relay's, " + store.OtherSlotName
	state, err := e.store.State(e.ctx)
	switch {
	case err == nil && state != nil && e.cfg.Postgres.OnSlotLost == config.SlotLostRecover:
		fix = "start cdc-relay run: it replaces the slot and publishes from the table what is not published"
	case err == nil && state != nil:
		fix = "set postgres.on_slot_lost: recover, and start cdc-relay run: it replaces the slot and publishes from the " +
			"table what is not published"
	}
	e.add(Fail, name, replication.Invalidated(slot.InvalidationReason), fix)
	return nil
}

// longTransactions names what the creation of a slot would have to wait for.
func (e *postgresExam) longTransactions() error {
	var pid int
	var micros int64 // an interval as text has the form of the database's intervalstyle
	err := e.row(`SELECT pid, (extract(epoch FROM clock_timestamp() - xact_start) * 1000000)::bigint FROM pg_stat_activity
		WHERE xact_start < clock_timestamp() - $1::bigint * interval '1 microsecond' AND pid <> pg_backend_pid()
		AND backend_type = 'client backend' ORDER BY xact_start LIMIT 1`,
		[]any{longTransaction.Microseconds()}, &pid, &micros)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err == nil {
		age := time.Duration(micros) * time.Microsecond
		e.add(Warn, "long transactions",
			fmt.Sprintf("backend %d is in a transaction for %s; creating the slot waits for its end", pid,
				age.Round(time.Second)), fmt.Sprintf("end it, or SELECT pg_terminate_backend(%d);", pid))
	}
	return err
}

// bytesOf is a size for people, in powers of 1024.
func bytesOf(n int64) string {
	size, unit := float64(n), "B"
	for _, larger := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if size < 1024 {
			break
		}
		size, unit = size/1024, larger
	}
	if unit == "B" {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", size, unit)
}
