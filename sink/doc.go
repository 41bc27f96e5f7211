// Package sink delivers records to a broker: in order per lane, with exactly one result for each.
//
// The [Engine] has what all brokers have in common: a FIFO per partition with at most one request in flight, natural
// batching (records that arrive during a request are the next batch), the window that bounds memory, the limit of
// unrecorded records that bounds duplicates after a crash, endless retries of transient trouble with the same bytes,
// narrowing of a rejected batch to the guilty record, and lanes that are held after a rejection. A [Driver] implements
// one kind of broker: where a key goes, who leads a partition, and one request.
//
// # The contract with the submitter
//
//   - Submit takes ownership of the records, in order; their bytes are immutable until Settled returns them. It blocks
//     while the window (events, bytes) is full, and returns early only when its context ends or the engine is closed,
//     with the number of records that it took, always a prefix. A record larger than the window is admitted alone.
//   - Each record comes back from Results exactly once per Submit or Retry: [Published], [Rejected] or [Held]. Results
//     of a lane come back in the order of submission; lanes are independent. A retry has its own order: records that
//     are submitted for the lane during a retry come back Held at once. Results never blocks a worker; the window
//     bounds the waiting results.
//   - Transient trouble (broker away, partition without leader, unknown outcome, wrong password) is never a result: the
//     engine keeps the record and tries again; Status has the reason.
//   - A rejection is definite and about that record: [Rejected] with class, code and reason. If the record has a key,
//     its lane (topic, key) is then held: queued records of the lane come back [Held] in order, and so does everything
//     submitted later for the lane. Rejected and Held records carry the lane's generation.
//   - Retry submits records of a held lane again, past the hold, with the lane's current generation, one such batch at
//     a time. With an old generation, or while the lane has a retry out, it returns an error and takes nothing. If one
//     of its records is rejected, the generation grows and the rest of the batch comes back Held. Retry does not wait
//     for the window: its records still have their place from Submit, or, if they come from outside the process, take
//     it without waiting.
//   - Insert submits a record that belongs to no lane, past the window, holds and diversions.
//   - Release(lane, generation) lifts the hold and returns true if the generation is current, no retry is out, and the
//     submitter has settled or retried all records that came back Rejected or Held. Otherwise it returns false and
//     changes nothing: further results of the lane are on their way.
//   - A record without a key is its own lane: it is never held and holds no other.
//   - Settled returns records whose outcome is durable: it frees their window and their unrecorded credit, and the
//     submitter may reuse them.
//   - The engine sends at most MaxUnrecorded records whose outcome is not settled: a record counts from the moment its
//     batch is first handed to the driver until Settled, or until it is definitely rejected.
//   - Close(ctx) accepts nothing more, lets requests in flight finish until the context ends, then stops every
//     goroutine. Records without a result never get one; whether they were written is unknown. Abandon does the same
//     and leaves the driver open for another engine.
//
// Tested by its promises: a model, scenarios in fake time, and the suite that drivers must pass (sinktest).
package sink
