// Package rabbitmq is the [sink.Driver] for RabbitMQ's exchanges (AMQP 0-9-1): a topic is an exchange, and messages are
// confirmed by the queues behind it. Streams by their own protocol are not its affair.
//
// # How a batch is sent
//
// In waves, in which each key occurs once; the next wave goes when every message of the last is confirmed. So a message
// that a queue refuses, or that no queue takes, is never overtaken by a later one of its key. Messages are persistent
// and mandatory: one that no queue takes comes back, and counts as not written although RabbitMQ confirms it.
//
// # Guarantees
//
//	order per key                 as committed, of the first delivery
//	loss                          none behind durable queues: confirmed means on disk, of a quorum queue on a majority
//	duplicates, cut or restart    bounded by the wave that was out, with the same message-id: queues cannot be read back
//	duplicates, kill -9 of relay  bounded by limits.max_unrecorded, with the same message-id
//	duplicates, frozen relay      the rest of the wave that it was sending: RabbitMQ cannot refuse it
//	position in the journal       exchange, 0, -1: there is none
//
// Tested in rabbitmq_test.go, on a real broker behind a proxy that cuts.
package rabbitmq
