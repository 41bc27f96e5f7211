// Package sqs is the [sink.Driver] for queues of Amazon SQS: a topic is a queue, and each event a message of it. Queues
// are FIFO queues, in which the messages of a key are one group; standard queues only where the configuration says so.
//
// # Guarantees
//
//	                              FIFO queue                               standard queue
//	order per key                 as committed, of the first delivery      none: SQS delivers in any order
//	loss                          none: SQS has what it has answered for   the same
//	duplicates, cut or restart    none for five minutes, counted beyond    the requests that were out, counted
//	duplicates, kill -9 of relay  none for five minutes, then bounded by   bounded by limits.max_unrecorded
//	                              limits.max_unrecorded
//	duplicates, frozen relay      none for five minutes                    the wave that it was sending
//	position in the journal       queue, 0, -1: there is none
//
// No real AWS was tried. Tested in sqs_test.go, on ElasticMQ behind a proxy that cuts, and in answers_test.go, on a
// server whose answers the tests choose.
package sqs
