package connect

import (
	"encoding/binary"
	"maps"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// topicsAnswer is what a broker of that version answers about two topics, and it has an id of the second.
func topicsAnswer(version int16) []byte {
	var m kmsg.MetadataResponse
	m.Version = version
	rack, cluster, name, absent := "rack", "cluster", "t", "u"
	m.ClusterID = &cluster
	m.Brokers = []kmsg.MetadataResponseBroker{{NodeID: 1, Host: "host", Port: 9092, Rack: &rack},
		{NodeID: 2, Host: "host", Port: 9093}}
	partition := kmsg.MetadataResponseTopicPartition{Partition: 1, Leader: 2, Replicas: []int32{1, 2}, ISR: []int32{2},
		OfflineReplicas: []int32{1}}
	m.Topics = []kmsg.MetadataResponseTopic{{Topic: &absent, ErrorCode: 3},
		{Topic: &name, TopicID: [16]byte{15: 7}, Partitions: []kmsg.MetadataResponseTopicPartition{partition, partition}}}
	head := binary.BigEndian.AppendUint32(nil, topicsID)
	return m.AppendTo(append(head, 0))
}

// Break caught: an answer that is believed beyond its bytes, at each place where it can end, or that is read wrongly.
func TestIDsAreReadFromWholeAnswersOnly(t *testing.T) {
	want := map[string]string{"t": "00000000000000000000000000000007"}
	for version := int16(oldestTopicIDs); version <= newestTopicIDs; version++ {
		answer := topicsAnswer(version)
		r := &TopicIDs{IDs: map[string]string{}}
		if err := r.read(answer); err != nil || !maps.Equal(r.IDs, want) {
			t.Errorf("version %d: got %v and %v, want %v", version, r.IDs, err, want)
		}
		end := len(answer) - 1 // tagged fields
		if version == oldestTopicIDs {
			end -= 4 // and what is allowed on the cluster, which no one reads
		}
		for n := range end {
			if err := (&TopicIDs{IDs: map[string]string{}}).read(answer[:n]); err == nil {
				t.Errorf("version %d: %d of %d bytes are taken for an answer", version, n, len(answer))
			}
		}
		for i := range answer {
			for _, with := range []byte{0, 1, 0x7f, 0x80, 0xff} {
				damaged := append([]byte(nil), answer...)
				damaged[i] = with
				_ = (&TopicIDs{IDs: map[string]string{}}).read(damaged) // no panic, and no more memory than it has bytes
			}
		}
	}
}
