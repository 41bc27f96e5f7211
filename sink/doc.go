// Package sink takes records in order and brings each to its broker, per lane in order, exactly one result a record.
//
// The [Engine] is everything that all brokers have in common: a FIFO per partition with at most one request in flight,
// natural batching (whatever arrived while the last request was out is the next batch), the window that bounds memory,
// the cap on unrecorded records that bounds duplicates after a crash, retries of transient trouble forever with the
// same bytes, narrowing a rejected batch to the guilty record, and lanes held back after a rejection. A [Driver]
// implements one kind of broker: where a key goes, who leads a partition, and one request. This package knows neither
// Kafka nor Postgres.
//
// # The contract with the submitter
//
//   - Submit takes ownership of the records, in order; their bytes are immutable from then until Settled returns them.
//     It blocks while the window (events, bytes) is full and returns early only when its context ends or the engine is
//     closed; it says how many records it took, always a prefix. A record larger than the whole window is admitted
//     alone.
//   - Each record taken comes back from Results exactly once per Submit or Retry: [Published], [Rejected] or [Held].
//     The results of one lane come back in the order in which its records were submitted; lanes are independent. A
//     retry has its own order: what is submitted for the lane while it is out comes back Held at once, not after it.
//     Results never blocks a worker: what waits there is bounded by the window.
//   - Transient trouble (broker away, partition without leader, unknown outcome, configuration trouble such as a wrong
//     password) is never a result: the engine keeps the record and tries again; Status says what it waits for.
//   - A rejection is definite and about that record: [Rejected] with class, code and reason. If the record has a key,
//     its lane (topic, key) is then held: records of the lane behind it in the queue come back [Held] in order, and so
//     does everything submitted later for the lane. Rejected and Held records carry the lane's generation.
//   - Retry hands records of a held lane in again, past the hold, with the lane's current generation, one such batch at
//     a time. An old generation, or a lane with a retry still out, is refused with an error and nothing is taken. If a
//     record of it is rejected, the generation grows, the rest of the batch comes back Held.
//     Retry does not wait for the window: its records still hold the place that they took at Submit, or, when they come
//     from outside the process, take it without waiting.
//   - Insert hands in a record that belongs to no lane, whatever its key, past the window, the holds and the
//     diversions.
//   - Release(lane, generation) lifts the hold and says true, if the generation is current, no retry is out and none of
//     the records that came back Rejected or Held is still with the submitter, neither settled nor retried. Otherwise
//     it says false and changes nothing: further results of the lane are on their way.
//   - A record without a key is its own lane: it is never held and holds no other.
//   - Settled gives records back after their outcome is durable: their window is free, their unrecorded credit too.
//     The engine forgets them; the submitter may reuse them.
//   - The engine starts sending at most MaxUnrecorded records whose outcome is not settled: it counts a record from the
//     moment its batch is first handed to the driver until Settled, or until it is definitely rejected.
//   - Close(ctx) takes in nothing more, lets requests in flight finish until the context ends, then stops every
//     goroutine. Records without a result then never get one; whether they were written is unknown. Abandon is the same
//     and leaves the driver open, for another engine.
//
// Tested by its promises: a model, scenarios in fake time, and the suite that drivers must pass (sinktest).
package sink
