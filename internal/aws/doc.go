// Package aws sends records to AWS services that take batches of at most ten entries. The drivers for SQS, SNS and
// EventBridge share it. It handles credentials, waves, error codes and possible duplicates; each [Service] builds its
// own entries and requests.
//
// # How a batch is sent
//
// In waves, in which each key occurs once; a wave goes in requests of up to ten entries, several at a time, and the
// next wave when every entry of the last is taken. So an entry that is refused or throttled is never overtaken by a
// later one of its key.
//
// # What an answer means
//
//	taken                                      written
//	InvalidMessageContents and the like        this event's own fault
//	throttling                                 not written; waited for
//	no such queue, no right, a KMS key         the topic's trouble: a person must look, and its events are parked
//	unknown login, wrong signature             the configuration's trouble
//	5xx, no answer                             may be written; sent again with the same deduplication id
//
// # Guarantees
//
// A FIFO queue or topic takes a deduplication id once within [Interval]. An entry whose outcome is unknown keeps its
// id, so within that time it is there once; one that is sent again later is counted as a possible duplicate.
// Destinations without deduplication count each one that is sent again.
//
// Tested in sink/sqs, sink/sns and sink/eventbridge, on servers that speak these protocols, errors in
// sink/sqs, on a server whose answers the tests choose.
package aws
