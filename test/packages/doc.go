// Package packages judges the packages for other languages by one contract, packages/contract: each has a driver that
// takes commands, and the same scenarios run through all of them on a real Postgres and Kafka.
package packages
