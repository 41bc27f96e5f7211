// Package rabbitmq has the two [sink.Driver] for RabbitMQ. [Driver] publishes to exchanges (AMQP 0-9-1): a topic is an
// exchange, and messages are confirmed by the queues behind it. [StreamDriver] publishes to streams by their own
// protocol: a topic is a stream.
//
// # How a batch is sent to an exchange
//
// In waves, in which each key occurs once; the next wave goes when every message of the last is confirmed. So a message
// that a queue refuses, or that no queue takes, is never overtaken by a later one of its key. Messages are persistent
// and mandatory: one that no queue takes comes back, and counts as not written although RabbitMQ confirms it.
//
// # How a batch is sent to a stream
//
// As one frame at a time, each message with a publishing id. The server drops ids that are not greater than the last
// one that it has under the publisher's name, and confirms them: after a broken connection the same ids are sent once
// more, from behind the one that the server says it has (QuerySequence). A message under an id that is too low is lost
// without a word, so an id is used for one message only.
//
// The name is the source's (x-outbox-source) and the service's; an id begins with the epoch (x-outbox-epoch). So the
// server drops what a frozen relay sends late, as soon as its successor has published. It confirms that as well. So
// when a batch is confirmed the publisher asks for the last id, and a later one than its own says that the batch may
// have been dropped. Where the server has ids of this epoch or a later one before the first message, as when the state
// table was restored, the publisher takes a name of its own.
//
// # Guarantees of exchanges
//
//	order per key                 as committed, of the first delivery
//	loss                          none behind durable queues: confirmed means on disk, of a quorum queue on a majority
//	duplicates, cut or restart    bounded by the wave that was out, with the same message-id: queues cannot be read back
//	duplicates, kill -9 of relay  bounded by limits.max_unrecorded, with the same message-id
//	duplicates, frozen relay      the rest of the wave that it was sending: RabbitMQ cannot refuse it
//	position in the journal       exchange, 0, -1: there is none
//
// # Guarantees of streams
//
//	order per key                 as committed, through every failure
//	loss                          none by the driver. A confirm means that a majority of the stream's replicas have it,
//	                              not that it is on a disk: a machine that loses power loses what it had not written.
//	                              That raises an alarm where the relay sees it
//	duplicates, cut or restart    none: the server drops what it has
//	duplicates, kill -9 of relay  none: Tail reads the stream back. What the server appends of the dead relay's last
//	                              frame after that, and before the first message of the next one, is the rest
//	duplicates, frozen relay      none once its successor has published to the stream: its ids are too low
//	position in the journal       stream, 0, offset of one record a second; -1 for the others, whose confirms have none
//
// The streams' protocol is spoken here because the official Go client could not read back what a named publisher had
// written (RabbitMQ 3.10), sends and confirms in goroutines of its own, and brings a dozen modules along.
//
// Tested in rabbitmq_test.go and stream_test.go, on real brokers behind proxies that cut.
package rabbitmq
