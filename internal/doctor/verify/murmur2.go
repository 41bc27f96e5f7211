package verify

import "encoding/binary"

// Murmur2 is the partition that Kafka's Java clients choose for a key (Utils.murmur2 and BuiltInPartitioner in
// Kafka's clients module).
func Murmur2(key []byte, partitions int32) int32 {
	const multiplier, seed = 0x5bd1e995, 0x9747b28c
	hash := uint32(seed) ^ uint32(len(key))
	rest := key
	for ; len(rest) >= 4; rest = rest[4:] {
		k := binary.LittleEndian.Uint32(rest) * multiplier
		k ^= k >> 24
		hash = hash*multiplier ^ k*multiplier
	}
	switch len(rest) {
	case 3:
		hash ^= uint32(rest[2]) << 16
		fallthrough
	case 2:
		hash ^= uint32(rest[1]) << 8
		fallthrough
	case 1:
		hash = (hash ^ uint32(rest[0])) * multiplier
	}
	hash ^= hash >> 13
	hash *= multiplier
	hash ^= hash >> 15
	return int32(hash&0x7fffffff) % partitions
}
