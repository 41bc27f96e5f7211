// Package sns is the [sink.Driver] for topics of Amazon SNS: each event is a message that SNS hands on to the topic's
// subscriptions. Topics are FIFO topics, in which the messages of a key are one group; standard topics only where the
// configuration says so.
//
// # Guarantees
//
//	                              FIFO topic                               standard topic
//	order per key                 as committed, of the first delivery      none: SNS delivers in any order
//	loss                          none as far as SNS, which keeps nothing: a topic without a subscription drops all
//	duplicates, cut or restart    none for five minutes, counted beyond    the requests that were out, counted
//	duplicates, kill -9 of relay  none for five minutes, then bounded by   bounded by limits.max_unrecorded
//	                              limits.max_unrecorded
//	duplicates, frozen relay      none for five minutes                    the wave that it was sending
//	position in the journal       topic, 0, -1: there is none
//
// No real AWS was tried. The tests are in sns_test.go, on moto behind a proxy that cuts, with an SQS queue subscribed.
package sns
