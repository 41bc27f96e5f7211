// Package bullmq is the [sink.Driver] for queues of BullMQ 5 and 6 and of Bull 4: a topic is a queue, a record a job
// that the libraries' own workers take. Each batch is added by a script that writes only if the queue's end, a counter
// of ours, is where the driver believes (package conditional).
//
// # How a batch is sent
//
// One script compares the counter with the expected one and adds up to scriptJobs jobs, as Queue.add of the library
// does, with a note of each; then it sets the counter. What it finds wrong it finds before the first write. An id
// protects a job only while the job is there; the counter protects it forever, also with removeOnComplete. Counter
// and notes have keys outside of the queue's: Queue.removeOrphanedJobs deletes what it does not know among those.
//
// # Guarantees
//
//	order                         of adding: as committed per key, through every failure; of the work: see the docs page
//	loss                          none by the driver. appendfsync everysec can lose the last two seconds that Redis had
//	                              acknowledged, a failover what the replica did not have: then the counter goes back,
//	                              which raises an alarm
//	duplicates, cut or restart    none: what the notes name is there
//	duplicates, kill -9 of relay  none: Tail reads the notes, and the first batch expects the counter that it read
//	duplicates, frozen relay      none: its batches find another counter
//	position in the journal       queue, 0, counter
//
// As many notes are kept as events can be on their way unrecorded (limits.max_unrecorded).
//
// # The job
//
// The id is the event's. BullMQ takes no integers and no colons, and an id must not be the name of a key of the queue:
// what has no digit, is an integer or begins with id- gets id- before it; : and % become %3A and %25. The data is the
// whole event (see Event), or the value, and then key and headers are in the job's options, as opts.outbox; see
// payload for a value that is no JSON.
//
// Tested in job_test.go; in bullmq_test.go, on a real server behind a proxy that cuts; in workers_test.go, with real
// workers.
package bullmq
