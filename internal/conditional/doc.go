// Package conditional appends batches to a log that takes them only if it ends where the writer believes: a JetStream
// stream, a Redis stream, a BullMQ queue. From this one condition it makes order, no duplicates and a fence:
//
//   - An append whose outcome is unknown, or that found another end, is never simply sent again: what stands behind the
//     end that is known is read, what of it is ours counts as written, and the rest is appended behind it.
//   - What an old connection, or a relay that was frozen, still delivers collides with what was appended since, or it
//     comes first and is found when the next append collides with it.
//   - A start leaves the log at the end up to which it was read ([Log.Start]); the first append expects that end, so
//     whatever was written between the two is found as well.
//   - An end that was asked for, because nothing was there to be read back, is believed once it is proved that no one
//     else had the slot when it was told (sink.Outcome.Prove).
//
// It does not know how a broker is asked: that is a [Stream], which each driver implements. It keeps no record and no
// batch: what was found behind the end and no one has claimed yet is remembered by its [Mark], a digest of its content.
// So it does not matter who sent it: this process, an earlier one, or another relay.
//
// Tested in log_test.go and permission_test.go, on a made-up log.
package conditional
