// Package replication owns one logical replication connection: it creates the slot, starts the stream, hands out WAL
// bytes in batches and sends the confirmed position to the server. It does not interpret the bytes; see package
// decoder.
//
// A [Session] is one connection from START_REPLICATION to its end; a reconnect is a new session. One goroutine, the one
// in [Session.Run], is the only user of the connection.
//
// Tested on a real Postgres; the poison, which only a race build has, by running the tests with it.
package replication
