// Package redisstream is the [sink.Driver] for Redis Streams: a topic is a stream's key, and each batch is appended by
// a script that writes only if the stream ends where the driver believes (package conditional).
//
// # How a batch is sent
//
// One script compares the stream's last-generated-id with the expected one and adds up to scriptRecords entries, whole
// or not at all: Redis looks at its memory before a script writes first, and lets one that has written finish. Ids are
// the server's time, never less than the last id's, with the second part counted up, so that entries of one script
// follow each other. An id is the journal's offset as milliseconds << 22 | second part.
//
// # Guarantees
//
//	order per key                 as committed, through every failure
//	loss                          none by the driver. appendfsync everysec can lose the last two seconds that Redis had
//	                              acknowledged, a failover what the replica did not have: then the stream's end goes
//	                              back, which raises an alarm
//	duplicates, cut or restart    none: what is there is read back
//	duplicates, kill -9 of relay  none: Tail reads the stream back, and the first append expects what it read
//	duplicates, frozen relay      none: its appends find another end
//	position in the journal       stream key, 0, ms << 22 | seq
//
// Entries that were trimmed before they could be read back count as not written; trim no closer to the end than
// limits.max_unrecorded.
//
// # The entry
//
// Fields in this order: key (unless there is none), one per header, payload. A tombstone has no payload and the field
// x-outbox-tombstone = true. A header called key or payload becomes header:key, header:payload. A header that is null
// is empty.
//
// Tested in redis_test.go, on a real server behind a proxy that cuts.
package redisstream
