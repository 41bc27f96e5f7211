// Package redis has the two [sink.Driver] on Redis: [Streams] for Redis Streams, a topic being a stream's key, and
// [BullMQ] for queues of BullMQ 5 and 6 and of Bull 4, a topic being a queue and a record a job that the libraries' own
// workers take. Each batch is added by a script that writes only if the stream or queue ends where the driver believes
// (package conditional).
//
// # How a batch is sent
//
// To a stream: one script compares the stream's last-generated-id with the expected one and adds up to scriptRecords
// entries, whole or not at all: Redis looks at its memory before a script writes first, and lets one that has written
// finish. Ids are the server's time, never less than the last id's, with the second part counted up, so that entries of
// one script follow each other. An id is the journal's offset as milliseconds << 22 | second part.
//
// To a queue: one script compares a counter of ours with the expected one and adds up to scriptJobs jobs, as Queue.add
// of the library does, with a note of each; then it sets the counter. What it finds wrong it finds before the first
// write. An id protects a job only while the job is there; the counter protects it forever, also with removeOnComplete.
// Counter and notes have keys outside of the queue's: Queue.removeOrphanedJobs deletes what it does not know among
// those. As many notes are kept as events can be on their way unrecorded (limits.max_unrecorded).
//
// # Guarantees
//
//	order                         as committed per key, through every failure; in a queue that is the order of adding,
//	                              for the order of the work see the docs page
//	loss                          none by the driver. appendfsync everysec can lose the last two seconds that Redis had
//	                              acknowledged, a failover what the replica did not have: then the end or the counter
//	                              goes back, which raises an alarm
//	duplicates, cut or restart    none: what is there, or what the notes name, is read back
//	duplicates, kill -9 of relay  none: Tail reads the stream or the notes, and the first batch expects what it read
//	duplicates, frozen relay      none: its batches find another end
//	position in the journal       stream key, 0, ms << 22 | seq; or queue, 0, counter
//
// Entries of a stream that were trimmed before they could be read back count as not written; trim no closer to the end
// than limits.max_unrecorded.
//
// # The entry of a stream
//
// Fields in this order: key (unless there is none), one per header, payload. A tombstone has no payload and the field
// x-outbox-tombstone = true. A header called key or payload becomes header:key, header:payload. A header that is null
// is empty.
//
// # The job of a queue
//
// The id is the event's. BullMQ takes no integers and no colons, and an id must not be the name of a key of the queue:
// what has no digit, is an integer or begins with id- gets id- before it; : and % become %3A and %25. The data is the
// whole event (see [JobEvent]), or the value, and then key and headers are in the job's options, as opts.outbox; see
// payload for a value that is no JSON.
//
// Tested in job_test.go; in streams_test.go and bullmq_test.go, on real servers behind proxies that cut; in
// workers_test.go, with real workers.
package redis
