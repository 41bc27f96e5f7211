// Package stdout is the [sink.Driver] for a look without a broker: it prints each record as one line of JSON. Nothing
// receives the records, so what it says was published, was printed and no more.
//
// # The line
//
//	{"topic":"outbox.event.order","partition":0,"offset":0,"timestamp":"2026-11-21T16:36:32.13Z","key":"order-17",
//	 "headers":[{"key":"id","value":"7"}],"value":{"total":"99.90"}}
//
// A value that is JSON stands there as it is, without the whitespace between its parts. Any other is a string, and
// "encoding" tells which kind: "text", or "base64" for what is not UTF-8. A tombstone has "value":null and
// "tombstone":true, which tells it from the JSON null. Keys and header values are strings, null when there is none, and
// base64 when "key_encoding", or the header's "encoding", says so. Headers are a list because their names may repeat;
// jq's from_entries makes an object of it.
//
// # Invariants
//
//   - S1: One writer at a time, and what was begun is finished before anything else is written: no line is ever torn,
//     and a write that failed goes on with the byte at which it stopped. So an unknown outcome never prints a record
//     twice, as long as the io.Writer counts rightly.
//   - S2: Offsets of a partition count its lines from 0 in this process.
//
// Tested in driver_test.go and line_test.go.
package stdout
