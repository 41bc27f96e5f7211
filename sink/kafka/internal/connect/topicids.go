package connect

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"

	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/apiversions"
)

// TopicIDs asks for the ids that the cluster gave topics when it created them (KIP-516). The library's Metadata ends
// with a version that has none, so this one puts itself on the wire and reads its answer, which has its ids by topic:
// topics that are not there, or that the cluster knows no id of, are left out.
type TopicIDs struct {
	ClientID string
	Topics   []string
	IDs      map[string]string // of the answer, in hex
}

// The versions of Metadata that have ids and the form that write and read know.
const oldestTopicIDs, newestTopicIDs = 10, 12

// The numbers of the two requests; the connection is theirs alone until the second is answered.
const versionsID, topicsID = 1, 2

// ApiKey is protocol.Message.
func (*TopicIDs) ApiKey() protocol.ApiKey { return protocol.Metadata }

// Required is protocol.RawExchanger: it says that RawExchange does it all.
func (*TopicIDs) Required(map[protocol.ApiKey]int16) bool { return true }

// RawExchange is protocol.RawExchanger. What the library has noted of the broker's versions is cut at its own.
func (r *TopicIDs) RawExchange(rw io.ReadWriter) (protocol.Message, error) {
	m, err := protocol.RoundTrip(rw, 0, versionsID, r.ClientID, &apiversions.Request{})
	if err != nil {
		return nil, err
	}
	answer := &TopicIDs{IDs: map[string]string{}}
	version := int16(-1)
	for _, k := range m.(*apiversions.Response).ApiKeys {
		if protocol.ApiKey(k.ApiKey) == protocol.Metadata && k.MinVersion <= newestTopicIDs {
			version = min(k.MaxVersion, newestTopicIDs)
		}
	}
	if version < oldestTopicIDs {
		return answer, nil
	}
	if _, err := rw.Write(r.request(version)); err != nil {
		return nil, err
	}
	var head [4]byte
	if _, err := io.ReadFull(rw, head[:]); err != nil {
		return nil, err
	}
	frame := make([]byte, min(binary.BigEndian.Uint32(head[:]), mostAnswer))
	if _, err := io.ReadFull(rw, frame); err != nil {
		return nil, err
	}
	if err := answer.read(frame); err != nil {
		return nil, fmt.Errorf("%w: answer to Metadata v%d: %w", ErrNotKafka, version, err)
	}
	return answer, nil
}

// request is the request on the wire (Kafka protocol guide, "Metadata API", request header v2).
func (r *TopicIDs) request(version int16) []byte {
	b := binary.BigEndian
	out := make([]byte, 4, 64)
	out = b.AppendUint16(out, uint16(protocol.Metadata))
	out = b.AppendUint16(out, uint16(version))
	out = b.AppendUint32(out, topicsID)
	out = appendString(out, r.ClientID)
	out = append(out, 0) // no tagged fields
	out = binary.AppendUvarint(out, uint64(len(r.Topics))+1)
	for _, name := range r.Topics {
		out = append(out, make([]byte, 16)...) // not by id
		out = binary.AppendUvarint(out, uint64(len(name))+1)
		out = append(append(out, name...), 0)
	}
	out = append(out, 0) // create none
	if version == oldestTopicIDs {
		out = append(out, 0) // without the operations that are allowed on the cluster
	}
	out = append(out, 0, 0) // nor on topics, and no tagged fields
	b.PutUint32(out, uint32(len(out)-4))
	return out
}

// Shapes of the parts of an answer that are passed over.
var (
	wireInt32  = &shape{kind: fixed, size: 4}
	wireText   = &shape{kind: text, flexible: true}
	wireNodes  = &shape{kind: arrayOf, flexible: true, of: wireInt32}
	wireBroker = &shape{kind: structured, flexible: true, fields: []*shape{wireInt32, wireText, wireInt32, wireText}}
	// wirePartition: error, index, leader and its epoch, then the replicas, those in sync, and those offline.
	wirePartition = &shape{kind: structured, flexible: true,
		fields: []*shape{{kind: fixed, size: 2 + 4 + 4 + 4}, wireNodes, wireNodes, wireNodes}}
	// answerHead: throttle time, brokers, cluster id, controller.
	answerHead = []*shape{wireInt32, {kind: arrayOf, flexible: true, of: wireBroker}, wireText, wireInt32}
	// topicRest: whether it is internal, partitions, operations, tagged fields.
	topicRest = &shape{kind: structured, flexible: true,
		fields: []*shape{{kind: fixed, size: 1}, {kind: arrayOf, flexible: true, of: wirePartition}, wireInt32}}
)

// read takes the ids from an answer, its id first.
func (r *TopicIDs) read(b []byte) error {
	if len(b) < 4 || binary.BigEndian.Uint32(b) != topicsID {
		return fmt.Errorf("it is the answer to another request")
	}
	b, err := skipTags(b[4:])
	for _, s := range answerHead {
		if err == nil {
			b, err = s.skip(b)
		}
	}
	if err != nil {
		return err
	}
	count, b, err := uvarint(b)
	for ; count > 1 && err == nil; count-- {
		b, err = r.topic(b)
	}
	return err
}

// topic takes one topic's id.
func (r *TopicIDs) topic(b []byte) (rest []byte, err error) {
	if b, err = take(b, 2); err != nil { // the error; a topic that has one has no id
		return nil, err
	}
	n, b, err := wireText.length(b)
	if err != nil || len(b) < max(n, 0)+16 {
		return nil, errShort
	}
	name, id := string(b[:max(n, 0)]), [16]byte(b[max(n, 0):])
	if id != ([16]byte{}) {
		r.IDs[name] = hex.EncodeToString(id[:])
	}
	return topicRest.skip(b[max(n, 0)+16:])
}
