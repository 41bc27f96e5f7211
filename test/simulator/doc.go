// Package simulator plays a relay against a Postgres and a broker that are made up, and judges what it does to them.
// The relay is the real one: relay.Relay with its supervisor, dispatcher, settler, parking, retrier, diverter, mirror,
// reconciler, the decoder, the ledger and sink.Engine. Below it everything is in memory, and time is that of
// testing/synctest: it moves when no one can do anything. A seed draws what a run is like and what happens in it.
//
// # The Postgres
//
// A WAL of real pgoutput messages, made from transactions of many sizes that overlap, abort, become visible late, hold
// rows of other tables and messages of others. A slot whose position reaches the disk now and then, so that it goes
// back when the server crashes, and whose last status can get lost with a connection. The relay's tables with the
// semantics of package store: a call is one transaction, which may be slow, fail, be cut off, or lose its answer after
// it has committed; writes that do not wait for the disk are forgotten by a crash; the fence of the epoch, the lease,
// the end of older sessions at a take-over. The slot is dropped or invalidated, the publication loses the table, the
// application deletes rows, the table is made again with the same ids. A slot has one outbox, or several with the same
// ids and keys. One may come during the run, and one go. It ends streams by an error of its own, with the
// reason behind what the relay has not read, and gives the slot away at once: now and then without a cause that stays,
// or because the publication was dropped or a transaction cannot be decoded, until a person repairs that. It does not
// know SQL: a real Postgres beside it holds it to that; see below.
//
// # The Kafka
//
// Partitions with their records, and answers of every kind: accepted late, not written, unknown and written or not or
// later, refused with the guilty named or not, no leader, no right to write, no topic, no broker at all. Topics lose
// records.
//
// # The other brokers
//
// Streams that take an append only if they end where the writer believes (conditional.go): the code of package
// conditional on made-up streams, which others write to as well, and to which parts of an append can come late.
// Exchanges (queue.go): the driver for RabbitMQ and its client on made-up connections. Endpoints (post.go): the driver
// for webhooks, whose requests go nowhere. The last two only confirm, and nothing can be read back.
//
// # The processes
//
// A process is killed at a random step, that is, before or after any call, or at a random time; stopped; frozen and
// woken when another one has its slot. What it had on the wire when it was killed is done, or not, or later.
//
// # The people
//
// They ask for replays, discards, retries, pauses and rounds of the reconciler at any time, for what topics have lost
// some seconds after that, and decide what the relay waits for in the end: about dead letters that hold their lanes, a
// breaker that is open, a pause.
//
// # The invariants
//
//   - J1 Every committed row is in its topic, or is a dead letter; once, except where a duplicate could not be known:
//     its dead process's request was written after its successor had read the topic, or that could not be read. With a
//     conditional stream only the last. Where nothing can be read back: once more for each connection, process or turn
//     that ended while it was on its way, and not when it is recorded; the driver counts what it has sent again itself.
//   - J2 First appearances of a lane are in the order of its commits, dead letters left out.
//   - J3 A process that has the slot has never more than limits.max_unrecorded records in topics that are not
//     journaled; records it left there before another one took the slot over, and it got it back, are that crash's, as
//     are those it looked for without success when it took the slot over again.
//   - J4 The slot's position never passes an event that is neither journaled, nor parked, nor dead; it never goes back
//     by the relay's word, and never exceeds what the session has received.
//   - J5 A journal row is true when it is written, but for one of a process that has lost the slot, whose record the
//     topic has lost since, and all are at the end; so is an offset below which everything of ours is said to be
//     journaled.
//   - J6 Topic, key, id and value of a record are those of a row that has committed.
//   - J7 Attempts are spent, and dead letters made, by events that were refused themselves.
//   - J8 Only the process to which the slot was granted raises the epoch, and only it begins requests; but for what a
//     driver makes of one, for as long as it says ([brokerKind.stint]), and for one whose stream ended behind what it
//     has not read, until SQL tells it or its proof of the lease is too old.
//   - J9 When all trouble ends, what persons repair included, everything is published, recorded and confirmed within
//     three minutes of fake time, and the processes stop when they are asked to. A start after a clean stop sends
//     nothing.
//   - J10 Only a row that the stream has not brought is published as late.
//   - J11 Nothing is published behind a dead letter that holds its lane, before a person has decided about that; and a
//     replay keeps the order of the dead letters of a key, also where one of them dies again: those behind it stay.
//   - J12 No more events die than dlq.breaker lets, and none before its copy is in dlq.topic.
//   - J13 While something ends each stream, someone says what, a minute after the end of all other trouble at the
//     latest.
//   - J14 What topics have lost and someone asks for is published once more if its row is there, in the order of its
//     lane, and counted.
//   - J15 Rows are marked when their event is recorded, and all are in the end, unless a crash has forgotten marks.
//
// With several outboxes each of these holds for each: ids, keys and lanes of one say nothing of another's. A record
// names the outbox that its row is of. What the stream has of a table that was dropped is published; what it has not of
// one that came is found at once, and is late.
//
// # The real Postgres
//
// What the made-up tables do is compared with package store on a real server, call by call: what both answer, the
// kind of an error, and all that both hold after it. Once for sequences of calls that no relay makes, by three of
// them on two slots; and for whole seeds, in which the real store answers the relay (make simulate-sql). The real
// calls are made by a goroutine outside of the bubble: who waits for it is not durably blocked, so fake time stands
// in the meantime. The clock, the end of the WAL and the slots that the SQL sees are the world's: testdata/postgres.sql
// puts them into the place of now(), pg_replication_slots and the like, in the catalog of that server alone. A
// transaction of the application has a real one that is open as long. Made up stay: the stream, the publication, the
// waits for transactions, which sessions a take-over ends, and what fails; a crash forgets nothing there, and calls
// do not overlap.
//
// # What a seed leaves open
//
// Each choice is a function of the seed and of what it is about, such as the third commit of the second process. What
// the Go scheduler does among goroutines that could all go on, which ready case of a select is taken, the order of a
// map and the relay's own random numbers (jitter, tokens) are not the seed's. So a run is nearly the same each time,
// and a failure that depends on these may need a few dozen runs of its seed to come again: -count 100. The children
// that play the seeds have one core each, which keeps this small.
package simulator
