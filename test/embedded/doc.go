// Package embedded starts throw-away servers on this machine for the demo and for tests: a real Postgres
// ([StartPostgres]) from binaries that it finds or downloads, and an in-process stand-in for Kafka
// ([StartFakeKafka]). It does not configure them for data that anybody wants to keep.
package embedded
