// Package kafka is the Kafka [sink.Driver]: it takes one request with at most one batch per partition to the broker
// that leads them and says of each batch whether it was written, was not, was refused and why, or may have been. It
// also knows where a key goes, who leads a partition, and how large a batch may be. When to send, what to batch, and
// how often to try again are the engine's business, not this package's.
//
// It stands on kafka-go's Transport (connections, TLS, SASL, version negotiation) and protocol packages, not on its
// Writer, which neither retries what may safely be retried nor keeps order when it does.
//
// # Invariants
//
//   - K1: A partition has at most one batch in flight, and a request at most one batch of a partition: a broker answers
//     only one of two. The engine promises the first, [Driver.Produce] checks it.
//   - K2: A range of sequence numbers that may have been written is never used for other records under the same
//     producer id: it is sent again with the same bytes, or its producer id is given up for that partition. A broker
//     takes an equal range for a duplicate and answers "written"; other records under it would be lost silently.
//   - K3: The sequence moves on only when the broker said that the batch is written.
//   - K4: Encoded bytes are immutable from the encoding to the verdict, and their buffer is used again only when no
//     attempt can still be reading it: kafka-go returns at the end of a context while its connection still reads.
//   - K5: NotWritten is said only when it is certain: the bytes were never read by a connection, or the broker
//     answered with a code that it gives before it appends.
//   - K6: No record is blamed for its size before the topic's limit was asked for again.
//
// # Files
//
// produce.go is the path of a request, patience.go when it is given up and its batches go alone; partition.go the
// producer ids and sequences; partitioner.go where a key goes; odd.go what becomes of answers that mean nothing;
// alarm.go what a person must know; cluster.go who leads what, refresh.go how that is kept true; create.go makes topics
// that are missing; limits.go the size limits; admin.go what `check` and the start ask; tail.go reads topics back.
//
// Three rooms know nothing of the driver: internal/recordset encodes and compresses a batch, internal/connect opens,
// secures and logs in connections and puts a request on one, internal/codes says what each answer means.
//
// Tested on a stand-in that misbehaves on demand, on a real broker and on three of them.
package kafka
