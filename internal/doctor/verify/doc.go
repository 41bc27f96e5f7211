// Package verify is the judge of the relay's promises. It compares the truth, which events were committed and in which
// order per lane, with what an independent consumer saw in the topics, and says what is missing, doubled, out of order
// or changed. It is pure: it neither reads a table nor a topic, and shares no code with the relay, so that a mistake
// there cannot hide here. The [Auditor] compares tables that do not fit into memory, by fewer rules.
//
// The rules:
//
//   - The ids of the truth are the ids in the topics: none missing, none unexpected. Events that the relay gave up or
//     parked are in no topic.
//   - First appearances of a lane's events are in commit order, unless a record says itself that it is late.
//   - Duplicates are rewinds: they repeat the lane's records in their order, without a gap, up to where it had been.
//   - The same id has the same bytes, key and topic, at each appearance.
//   - A key stays on one partition, and on the right one.
//   - A journal row names a place where the event is.
//
// Tested in auditor_test.go and judge_test.go, by streams with planted mistakes.
package verify
