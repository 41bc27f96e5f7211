// Package aws is the [sink.Driver] for services of AWS: queues of Amazon SQS, topics of Amazon SNS and event buses of
// Amazon EventBridge. A topic is one of these, and each event a message or, on a bus, an event whose detail has the
// payload as data and everything else as metadata. Queues and topics are FIFO, and the messages of a key are one group;
// standard ones only where the configuration allows them.
//
// # How a batch is sent
//
// In waves, in which each key occurs once; a wave goes in requests of up to ten entries, several at a time, and the
// next wave when every entry of the last is taken. So an entry that is refused or throttled is never overtaken by a
// later one of its key. The driver handles credentials, waves, error codes and possible duplicates; each service builds
// its own entries and requests.
//
// # What an answer means
//
//	taken                                      written
//	InvalidMessageContents and the like        this event's own fault
//	throttling                                 not written; waited for
//	no such queue, no right, a KMS key         the topic's trouble: a person must look, and its events are parked
//	unknown login, wrong signature             the configuration's trouble
//	5xx, no answer                             may be written; sent again with the same deduplication id
//
// # Guarantees
//
//	                              FIFO queue or topic                      standard queue or topic
//	order per key                 as committed, of the first delivery      none: delivered in any order
//	loss                          none: SQS has what it has answered for   the same
//	duplicates, cut or restart    none for five minutes, counted beyond    the requests that were out, counted
//	duplicates, kill -9 of relay  none for five minutes, then bounded by   bounded by limits.max_unrecorded
//	                              limits.max_unrecorded
//	duplicates, frozen relay      none for five minutes                    the wave that it was sending
//	position in the journal       queue or topic, 0, -1: there is none
//
// A bus is as a standard queue: events are put as committed, and EventBridge recognizes none and delivers in any order.
// SNS and EventBridge keep nothing: a topic without a subscription drops everything, and what no rule matches is gone.
//
// A FIFO queue or topic takes a deduplication id once within [interval]. An entry whose outcome is unknown keeps its
// id, so within that time it is there once; one that is sent again later is counted as a possible duplicate.
// Destinations without deduplication count each one that is sent again.
//
// A bus that does not exist is no error to EventBridge, which drops what is put there. So the bus is looked for before
// the first event and every [recheck]; what is put between its deletion and the next look is lost.
//
// No real AWS was tried. Tested on ElasticMQ and moto behind a proxy that cuts, with a subscribed queue and a rule that
// leads to one, and in sqs_answers_test.go and eventbridge_answers_test.go on servers whose answers the tests choose.
package aws
