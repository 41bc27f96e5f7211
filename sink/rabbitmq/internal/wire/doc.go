// Package wire speaks RabbitMQ's stream protocol, as far as a relay needs it: one question at a time on a connection,
// publishing, and reading a stream.
//
// Tested in amqp_test.go, and by package rabbitmqstream on a real server.
package wire
