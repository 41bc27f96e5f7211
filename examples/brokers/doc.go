// Package brokers holds consumers to copy for brokers besides Kafka: each handles every event once in Postgres, by the
// event's id in the transaction of its effect. Tested in brokers_test.go, killed, and frozen behind another that takes
// over.
package brokers
