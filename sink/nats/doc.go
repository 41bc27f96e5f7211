// Package nats is the [sink.Driver] for NATS JetStream: a topic is a subject, the stream that takes it is found, and
// each batch is appended only if the stream ends where the driver believes (package conditional).
//
// # How a batch is sent
//
// To a stream that takes atomic batches (allow_atomic, since nats-server 2.12) as such: all of it is written, if the
// stream ends where the first message expects (Nats-Expected-Last-Sequence), or none.
//
// To any other stream of one replica all messages are on their way at once. Each expects the stream's last sequence
// and, but for the first, the id of the message before it (Nats-Expected-Last-Msg-Id): sequences alone would let a
// message in when a foreign one has taken the place of its predecessor. So a batch is written as a front, whatever
// happens, and what a dead connection or a frozen relay still delivers is refused.
//
// To one of more replicas messages go one by one, without ids to expect: see stream.Portion.
//
// # Guarantees
//
//	order per key                 as committed, through every failure
//	loss                          none; what a broken disk or a power cut takes is the server's (sync_interval, replicas)
//	duplicates, cut or restart    none: what is there is read back
//	duplicates, kill -9 of relay  none: Tail reads the stream back, and the first append expects what it read
//	duplicates, frozen relay      none: its appends collide
//	position in the journal       subject, 0, stream sequence
//
// A stream whose messages go away when they are consumed (retention interest or workqueue) cannot be read back: an
// event whose acknowledgement was lost, and that was consumed before the driver looked, comes twice, with the same
// headers.
//
// # The message
//
// Subject = topic, data = value, headers as they are; x-outbox-key is the key (x-outbox-key-base64 for one that is no
// plain text), x-outbox-tombstone: true tells a tombstone from an empty value. A header that is null is empty. Readers
// drop white space around header values. Nats-Msg-Id is the driver's, another one for each attempt: it is a link of the
// chain and no identity of the event. The server keeps ids for the stream's duplicate window, 2 minutes by default and
// some 240 bytes each; a window of a second is enough and costs nothing.
//
// Tested in nats_test.go, on a real server behind a proxy that cuts.
package nats
