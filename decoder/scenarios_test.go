package decoder

// scenario is the source of one golden file.
type scenario struct {
	name, about string
	setup       []string // before the slot
	publication string
	tables      []string // the bound ones
	extra       []string
	steps       []string // one query each; each is one transaction unless it says otherwise
}

const (
	createOutbox = "CREATE TABLE outbox (id uuid PRIMARY KEY, aggregate_type text, aggregate_id text, event_type text, " +
		"payload jsonb,\n" +
		"  headers jsonb, created_at timestamptz DEFAULT '2026-11-21 16:36:32.123456+00', published_at timestamptz)"
	publishInserts = "CREATE PUBLICATION pub FOR TABLE outbox WITH (publish = 'insert')"
	publishAll     = "CREATE PUBLICATION pub FOR TABLE outbox"
	insert1        = "INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload) VALUES " +
		"('00000000-0000-0000-0000-000000000001', 'order', 'o-1', 'created', '{\"n\": 1}')"
	insert2 = "INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload) VALUES " +
		"('00000000-0000-0000-0000-000000000002', 'order', 'o-2', 'created', '{\"n\": 2}')"
	insert3 = "INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload) VALUES " +
		"('00000000-0000-0000-0000-000000000003', 'order', 'o-1', 'paid', '{\"n\": 3}')"
)

var scenarios = []scenario{
	{
		name: "types", about: "the text form of many types, NULL, the empty string, bytea, an enum",
		setup: []string{
			"CREATE TYPE kind AS ENUM ('created', 'it''s paid')",
			"CREATE TABLE outbox (id bigint PRIMARY KEY, aggregate_type varchar(20), aggregate_id text, event_type kind, " +
				"payload bytea, headers json,\n" +
				"  created_at timestamptz, n numeric, f float8, b boolean, a text[], d date, raw bytea, c char(4), unmapped bytea)",
		},
		publication: publishInserts, tables: []string{"outbox"},
		extra: []string{"raw", "n", "f", "b", "a", "d", "c", "payload"},
		steps: []string{
			`INSERT INTO outbox VALUES (1, 'order', 'ключ 钥匙', 'it''s paid', '\x00ff5c78', '{"a" : "b"}',
				'2026-11-21 16:36:32.1+00', 1.50, 1e-7, true, '{a,"b c"}', '2026-01-02', 'text', 'ab', '\xdead')`,
			`INSERT INTO outbox VALUES (2, '', '', NULL, '', NULL, NULL, 'NaN', '-Infinity', false, '{}', 'infinity', '\x', '',
				NULL)`,
			`INSERT INTO outbox (id) VALUES (-3)`,
		},
	},
	{
		name: "toast", about: "an insert carries values of any size, however they are stored",
		setup: []string{
			"CREATE TABLE outbox (id int PRIMARY KEY, aggregate_type text, aggregate_id text, event_type text, payload text, " +
				"headers text, created_at timestamptz, raw bytea)",
			"ALTER TABLE outbox ALTER COLUMN payload SET STORAGE EXTERNAL, ALTER COLUMN raw SET STORAGE EXTERNAL",
		},
		publication: publishInserts, tables: []string{"outbox"}, extra: []string{"raw"},
		steps: []string{"INSERT INTO outbox VALUES (1, 'order', 'o-1', 'created', repeat('x', 100000), repeat('y', 5000), " +
			"'2026-11-21 16:36:32+00', decode(repeat('33', 3000), 'hex'))"},
	},
	{
		name: "multi_insert", about: "rows of one statement and of one transaction; transactions end at once",
		setup: []string{createOutbox}, publication: publishInserts, tables: []string{"outbox"},
		steps: []string{
			"INSERT INTO outbox (id, aggregate_id, payload) SELECT ('00000000-0000-0000-0000-00000000000' || n)::uuid, 'o-' " +
				"|| n, to_jsonb(n) FROM generate_series(1, 4) n",
			"BEGIN; " + "INSERT INTO outbox (id, payload) VALUES ('00000000-0000-0000-0000-000000000005', 'null'); COMMIT",
		},
	},
	{
		name: "copy", about: "COPY: its rows share one LSN",
		setup: []string{createOutbox}, publication: publishInserts, tables: []string{"outbox"},
		steps: []string{
			"COPY outbox (id, aggregate_type, aggregate_id, event_type, payload) FROM STDIN (FORMAT csv)\n" +
				"00000000-0000-0000-0000-000000000001,order,o-1,created,\"{\"\"n\"\": 1}\"\n" +
				"00000000-0000-0000-0000-000000000002,order,,created,1\n" +
				"00000000-0000-0000-0000-000000000003,order,\"\",created,\"\"\"three\"\"\"",
		},
	},
	{
		name: "rollback", about: "rows of a rolled back savepoint and of an aborted transaction do not come",
		setup: []string{createOutbox}, publication: publishInserts, tables: []string{"outbox"},
		steps: []string{
			"BEGIN; " + insert1 + "; SAVEPOINT s; " + insert2 + "; ROLLBACK TO s; " + insert3 + "; COMMIT",
			"BEGIN; " + insert2 + "; ROLLBACK",
			"BEGIN; SAVEPOINT s; " + insert2 + "; RELEASE s; COMMIT",
		},
	},
	{
		name: "insert_delete", about: "a row that its own transaction changes and deletes comes as it was inserted",
		setup: []string{createOutbox}, publication: publishInserts, tables: []string{"outbox"},
		steps: []string{"BEGIN; " + insert1 + "; UPDATE outbox SET payload = '0'; DELETE FROM outbox; COMMIT"},
	},
	{
		name: "insert_only", about: "publish = 'insert': nothing comes for update, delete and truncate",
		setup: []string{createOutbox}, publication: publishInserts, tables: []string{"outbox"},
		steps: []string{insert1, "UPDATE outbox SET published_at = now()", "DELETE FROM outbox", "TRUNCATE outbox", insert2},
	},
	{
		name: "publish_all", about: "a publication of everything: updates with and without a changed key, with an " +
			"unchanged TOAST value, deletes, truncate",
		setup: []string{
			"CREATE TABLE outbox (id int PRIMARY KEY, aggregate_type text, aggregate_id text, event_type text, payload text, " +
				"headers text, created_at timestamptz)",
			"ALTER TABLE outbox ALTER COLUMN payload SET STORAGE EXTERNAL",
		},
		publication: publishAll, tables: []string{"outbox"},
		steps: []string{
			"INSERT INTO outbox VALUES (1, 'order', 'o-1', 'created', repeat('x', 5000), NULL, NULL)",
			"UPDATE outbox SET event_type = 'paid'",
			"UPDATE outbox SET id = 2",
			"ALTER TABLE outbox REPLICA IDENTITY FULL",
			"UPDATE outbox SET event_type = 'sent'",
			"DELETE FROM outbox",
			"INSERT INTO outbox (id) VALUES (3)",
			"ALTER TABLE outbox REPLICA IDENTITY DEFAULT",
			"DELETE FROM outbox",
			"TRUNCATE outbox RESTART IDENTITY",
		},
	},
	{
		name: "ddl", about: "the columns change inside and between transactions: a new Relation message comes before the " +
			"next row",
		setup:       []string{"CREATE SCHEMA other", createOutbox},
		publication: publishInserts, tables: []string{"outbox"}, extra: []string{"published_at"},
		steps: []string{
			"BEGIN; " + insert1 + "; ALTER TABLE outbox ADD COLUMN shard int DEFAULT 7; " + insert2 +
				"; ALTER TABLE outbox DROP COLUMN shard; " + insert3 + "; COMMIT",
			"ALTER TABLE outbox DROP COLUMN headers, DROP COLUMN payload; ALTER TABLE outbox ADD COLUMN payload bytea, ADD " +
				"COLUMN headers text",
			`INSERT INTO outbox (id, payload) VALUES ('00000000-0000-0000-0000-000000000004', '\x0102')`,
			"ALTER TABLE outbox RENAME TO events; ALTER TABLE events SET SCHEMA other",
			`INSERT INTO other.events (id, payload) VALUES ('00000000-0000-0000-0000-000000000005', '\x0304')`,
		},
	},
	{
		name: "column_renamed", about: "a mapped column is renamed",
		setup: []string{createOutbox}, publication: publishInserts, tables: []string{"outbox"},
		steps: []string{insert1, "ALTER TABLE outbox RENAME COLUMN payload TO body",
			"INSERT INTO outbox (id, body) VALUES ('00000000-0000-0000-0000-000000000002', '2')"},
	},
	{
		name: "column_list", about: "the publication's column list lacks a mapped column",
		setup: []string{createOutbox}, tables: []string{"outbox"},
		publication: "CREATE PUBLICATION pub FOR TABLE outbox (id, aggregate_type, aggregate_id, event_type, created_at, " +
			"headers) WITH (publish = 'insert')",
		steps: []string{insert1},
	},
	{
		name: "id_null", about: "a row without an id",
		setup:       []string{createOutbox, "ALTER TABLE outbox DROP CONSTRAINT outbox_pkey, ALTER COLUMN id DROP NOT NULL"},
		publication: publishInserts, tables: []string{"outbox"},
		steps: []string{"BEGIN; " + insert1 + "; INSERT INTO outbox (aggregate_id) VALUES ('o-2'); COMMIT"},
	},
	{
		name:  "logical_messages",
		about: "pg_logical_emit_message, transactional and not, also of a transaction that rolls back",
		setup: []string{createOutbox}, publication: publishInserts, tables: []string{"outbox"},
		steps: []string{
			"SELECT pg_logical_emit_message(true, 'cdc-relay', 'token')",
			"SELECT pg_logical_emit_message(false, '', '\\x00ff'::bytea)",
			"BEGIN; " + insert1 + "; SELECT pg_logical_emit_message(true, 'inside', 'after the row'); SELECT " +
				"pg_logical_emit_message(false, 'beside', ''); " + insert2 + "; COMMIT",
			"BEGIN; SELECT pg_logical_emit_message(true, 'lost', ''); SELECT pg_logical_emit_message(false, 'kept', ''); " +
				"ROLLBACK",
		},
	},
	{
		name: "partitions_root", about: "a partitioned outbox, published via the root: rows bear the root's OID",
		setup:       partitioned,
		publication: "CREATE PUBLICATION pub FOR TABLE outbox WITH (publish = 'insert', publish_via_partition_root)",
		tables:      []string{"outbox", "outbox_a", "outbox_b"},
		steps:       []string{insertIntoPartitions},
	},
	{
		name: "partitions_leaves", about: "a partitioned outbox: rows bear the leaf's OID, and each leaf has its own order " +
			"of columns; one leaf is not bound",
		setup: partitioned, publication: publishInserts, tables: []string{"outbox", "outbox_b"},
		steps: []string{insertIntoPartitions},
	},
	{
		name: "two_phase", about: "a prepared transaction comes at COMMIT PREPARED, behind those that committed before",
		setup: []string{createOutbox}, publication: publishInserts, tables: []string{"outbox"},
		steps: []string{
			"BEGIN; " + insert1 + "; PREPARE TRANSACTION 'p'", insert2, "COMMIT PREPARED 'p'",
			"BEGIN; " + insert3 + "; PREPARE TRANSACTION 'q'", "ROLLBACK PREPARED 'q'",
		},
	},
	{
		name: "foreign", about: "a publication for all tables: rows of strangers between ours, and an origin",
		setup:       []string{createOutbox, "CREATE TABLE stranger (a int PRIMARY KEY, b text)"},
		publication: "CREATE PUBLICATION pub FOR ALL TABLES", tables: []string{"outbox"},
		steps: []string{
			"BEGIN; INSERT INTO stranger VALUES (1, 'x'); " + insert1 +
				"; INSERT INTO stranger VALUES (2, NULL); UPDATE stranger SET b = 'y' WHERE a = 2; DELETE FROM stranger; " +
				insert2 + "; COMMIT",
			"SELECT pg_replication_origin_create('elsewhere'), pg_replication_origin_session_setup('elsewhere')",
			"BEGIN; SELECT pg_replication_origin_xact_setup('0/1234', '2026-11-21 16:00:00+00'); " + insert3 + "; COMMIT",
			"SELECT pg_replication_origin_session_reset()",
			"TRUNCATE stranger, outbox CASCADE",
		},
	},
}

var partitioned = []string{
	"CREATE TABLE outbox (id int, aggregate_type text, aggregate_id text, event_type text, payload jsonb, headers " +
		"jsonb, created_at timestamptz) PARTITION BY LIST (aggregate_type)",
	"CREATE TABLE outbox_a PARTITION OF outbox FOR VALUES IN ('a')",
	"CREATE TABLE outbox_b (payload jsonb, headers jsonb, event_type text, aggregate_id text, aggregate_type text, " +
		"created_at timestamptz, id int)",
	"ALTER TABLE outbox ATTACH PARTITION outbox_b FOR VALUES IN ('b')",
}

const insertIntoPartitions = "INSERT INTO outbox VALUES (1, 'a', 'k', 'created', '1', NULL, NULL), (2, 'b', 'k', " +
	"'created', '2', NULL, NULL), (3, 'a', 'k', 'paid', '3', NULL, NULL)"
