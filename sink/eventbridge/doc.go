// Package eventbridge is the [sink.Driver] for event buses of Amazon EventBridge: a topic is a bus, and each event an
// event of it, whose detail has the payload as data and everything else as metadata.
//
// # Guarantees
//
//	order per key                 as committed when they are put; EventBridge delivers in any order
//	loss                          none as far as EventBridge, which keeps nothing: what no rule matches is gone
//	duplicates, cut or restart    the requests that were out, counted: EventBridge recognizes no event
//	duplicates, kill -9 of relay  bounded by limits.max_unrecorded
//	duplicates, frozen relay      the wave that it was sending
//	position in the journal       bus, 0, -1: there is none
//
// A bus that does not exist is no error to EventBridge, which drops what is put there. So the bus is looked for before
// the first event and every [recheck]; what is put between its deletion and the next look is lost.
//
// No real AWS was tried. Tested in eventbridge_test.go and, with a whole relay, in test/brokers, on moto behind a proxy
// that cuts, with a rule that leads to an SQS queue.
package eventbridge
