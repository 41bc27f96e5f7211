package kafka

import (
	"encoding/binary"

	"github.com/cdc-relay/cdc-relay/sink"
)

// stickyRun is how many records without a key in a row go to one partition: enough for fair batches at low cost,
// few enough that the partitions fill evenly.
const stickyRun = 32

// Partition chooses as the Java clients' default partitioner does, so that topics written by both are
// co-partitioned. Records without a key go round the partitions in runs.
func (d *Driver) Partition(r *sink.Record, partitions int) int32 {
	if r.Key == nil {
		return int32(d.keyless.Add(1) / stickyRun % uint64(partitions))
	}
	return int32((murmur2(r.Key) & 0x7fffffff) % uint32(partitions))
}

// murmur2 is the hash of org.apache.kafka.common.utils.Utils.murmur2.
func murmur2(key []byte) uint32 {
	const (
		seed = 0x9747b28c
		m    = 0x5bd1e995
		r    = 24
	)
	h := uint32(seed) ^ uint32(len(key))
	for ; len(key) >= 4; key = key[4:] {
		k := binary.LittleEndian.Uint32(key) * m
		k ^= k >> r
		h = h*m ^ k*m
	}
	switch len(key) {
	case 3:
		h ^= uint32(key[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(key[1]) << 8
		fallthrough
	case 1:
		h = (h ^ uint32(key[0])) * m
	}
	h = (h ^ h>>13) * m
	return h ^ h>>15
}
