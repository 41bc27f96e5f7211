package connect

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/apiversions"
	"github.com/segmentio/kafka-go/protocol/createtopics"
	"github.com/segmentio/kafka-go/protocol/describeconfigs"
	"github.com/segmentio/kafka-go/protocol/initproducerid"
	"github.com/segmentio/kafka-go/protocol/listoffsets"
	"github.com/segmentio/kafka-go/protocol/metadata"
	"github.com/segmentio/kafka-go/protocol/produce"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// sound are answers as a broker gives them.
func sound(host string, port int32) []protocol.Message {
	return []protocol.Message{
		&apiversions.Response{ApiKeys: []apiversions.ApiKeyResponse{
			{ApiKey: int16(protocol.Produce), MaxVersion: 8}, {ApiKey: int16(protocol.Metadata), MaxVersion: 8},
			{ApiKey: int16(protocol.ApiVersions), MaxVersion: 2}, {ApiKey: int16(protocol.InitProducerId), MaxVersion: 1},
			{ApiKey: int16(protocol.DescribeConfigs), MaxVersion: 2}, {ApiKey: int16(protocol.CreateTopics), MaxVersion: 4},
			{ApiKey: int16(protocol.ListOffsets), MaxVersion: 1},
		}},
		&metadata.Response{
			Brokers: []metadata.ResponseBroker{{NodeID: 1, Host: host, Port: port}}, ClusterID: "cluster", ControllerID: 1,
			Topics: []metadata.ResponseTopic{{Name: "t", Partitions: []metadata.ResponsePartition{
				{PartitionIndex: 0, LeaderID: 1, ReplicaNodes: []int32{1}, IsrNodes: []int32{1}},
			}}},
		},
		&initproducerid.Response{ProducerID: 7},
		&describeconfigs.Response{Resources: []describeconfigs.ResponseResource{{ResourceName: "t", ResourceType: 2,
			ConfigEntries: []describeconfigs.ResponseConfigEntry{{ConfigName: "max.message.bytes", ConfigValue: "1000"}}}}},
		&createtopics.Response{Topics: []createtopics.ResponseTopic{{Name: "t", ErrorMessage: "no"}}},
		&listoffsets.Response{Topics: []listoffsets.ResponseTopic{{Topic: "t",
			Partitions: []listoffsets.ResponsePartition{{Partition: 0, Timestamp: -1, Offset: 5}}}}},
		&produce.Response{Topics: []produce.ResponseTopic{{Topic: "t",
			Partitions: []produce.ResponsePartition{{Partition: 0, BaseOffset: 3}}}}},
	}
}

// versions are those in which the answers are sent, those that the relay speaks.
var versions = map[protocol.ApiKey]int16{protocol.ApiVersions: 0, protocol.Metadata: 8, protocol.InitProducerId: 1,
	protocol.DescribeConfigs: 2, protocol.CreateTopics: 4, protocol.ListOffsets: 1, protocol.Produce: 8}

func encoded(t testing.TB, m protocol.Message, version int16, id int32) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := protocol.WriteResponse(&b, version, id, m); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// mutate changes an answer as damage or malice would; the length in front of it is true, as a rule.
func mutate(random *rand.Rand, frame []byte) []byte {
	frame = bytes.Clone(frame)
	odd := []uint32{0, 1, 0xffffffff, 0x7fffffff, 0x80000000, 0xfffffffe, 1 << 24, 1 << 30}
	for range 1 + random.IntN(3) {
		at := 8 + random.IntN(max(len(frame)-8, 1))
		switch random.IntN(6) {
		case 0:
			binary.BigEndian.PutUint32(frame[min(at, len(frame)-4):], odd[random.IntN(len(odd))])
		case 1:
			binary.BigEndian.PutUint16(frame[min(at, len(frame)-2):], uint16(odd[random.IntN(len(odd))]))
		case 2:
			frame[min(at, len(frame)-1)] = byte(random.Uint32())
		case 3:
			frame = frame[:max(12, min(at, len(frame)))]
		case 4:
			frame = append(frame, make([]byte, random.IntN(20))...)
		case 5:
			frame = bytes.Replace(frame, []byte("localhost"), []byte("local,ost"), 1)
		}
	}
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
	if random.IntN(20) == 0 {
		binary.BigEndian.PutUint32(frame, odd[random.IntN(len(odd))])
	}
	return frame
}

// wantBounded fails if looking at the answer panics, or takes memory that its bytes do not justify.
func wantBounded(t *testing.T, frame []byte, key protocol.ApiKey, version int16) {
	t.Helper()
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4)) // a frame is as long as it says; see guard.next
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if inspect(frame, key, version) == nil {
		if _, _, err := protocol.ReadResponse(bytes.NewReader(frame), key, version); err != nil {
			t.Logf("passed on, and refused by the library: %v", err)
		}
	}
	runtime.ReadMemStats(&after)
	if took, most := after.TotalAlloc-before.TotalAlloc, uint64(1<<20+1000*len(frame)); took > most {
		t.Errorf("an answer of %d bytes took %d bytes of memory, more than %d", len(frame), took, most)
	}
}

// Every answer as it should be passes in each version that kafka-go writes.
func TestGuardPassesWhatBrokersAnswer(t *testing.T) {
	for _, m := range sound("localhost", 9092) {
		for version := int16(0); version <= 9; version++ {
			var b bytes.Buffer
			if protocol.WriteResponse(&b, version, 1, m) != nil {
				continue
			}
			if err := inspect(b.Bytes(), m.ApiKey(), version); err != nil {
				t.Errorf("%s v%d: got %v, want it passed on", m.ApiKey(), version, err)
			}
		}
	}
}

// Damaged answers neither panic the library nor make it believe a count. Seen to fail without the shapes, and with
// nothing looked at: a count takes more memory than a limit of 5 GB allows; also with lengths that are larger than what
// is left let pass, which panics in the guard. Lengths below zero are null to the library: letting them pass is not
// noticed here.
func TestGuardStopsDamagedAnswers(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range harness.Count(t, "damaged answers") {
		m := sound("localhost", 9092)
		one := m[random.IntN(len(m))]
		version := versions[one.ApiKey()]
		wantBounded(t, mutate(random, encoded(t, one, version, 1)), one.ApiKey(), version)
	}
}

func FuzzAnswer(f *testing.F) {
	for i, m := range sound("localhost", 9092) {
		f.Add(byte(i), encoded(f, m, versions[m.ApiKey()], 1))
	}
	f.Fuzz(func(t *testing.T, which byte, frame []byte) {
		if len(frame) < 8 {
			return
		}
		all := sound("localhost", 9092)
		m := all[int(which)%len(all)]
		wantBounded(t, frame, m.ApiKey(), versions[m.ApiKey()])
	})
}

// serve answers each request on the listener's connections with what answer makes of it.
func serve(t *testing.T, answer func(key protocol.ApiKey, version int16, id int32) []byte) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for {
					head := make([]byte, requestHead)
					if _, err := io.ReadFull(c, head); err != nil {
						return
					}
					b := binary.BigEndian
					if _, err := io.CopyN(io.Discard, c, int64(b.Uint32(head))+4-requestHead); err != nil {
						return
					}
					said := answer(protocol.ApiKey(b.Uint16(head[4:])), int16(b.Uint16(head[6:])), int32(b.Uint32(head[8:])))
					if _, err := c.Write(said); err != nil {
						return
					}
				}
			}()
		}
	}()
	return l.Addr().String()
}

func newEndpoint(t *testing.T, address string) *Endpoint {
	t.Helper()
	d := NewDialer(t.Context(), Config{ClientID: "test", DialTimeout: time.Second,
		Dial: new(net.Dialer).DialContext})
	t.Cleanup(d.Close)
	e := d.Endpoint(address)
	t.Cleanup(e.Close)
	return e
}

// Whole exchanges with a broker that damages one answer in three: each request ends, with its answer or an error.
// Seen to fail without the guard: the process ends, out of memory with a limit of 5 GB.
func TestDamagedAnswersEndTheirConnectionOnly(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	turn := make(chan struct{}, 1)
	turn <- struct{}{}
	address := serve(t, func(key protocol.ApiKey, version int16, id int32) []byte {
		<-turn
		defer func() { turn <- struct{}{} }()
		for _, m := range sound("localhost", 9092) {
			if m.ApiKey() == key {
				said := encoded(t, m, version, id)
				if random.IntN(3) == 0 {
					said = mutate(random, said)
				}
				return said
			}
		}
		return nil
	})
	e := newEndpoint(t, address)
	answered := 0
	for i := range harness.Count(t, "exchanges with damage") {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond) // an answer that is short has no end
		request := []protocol.Message{Direct{&metadata.Request{TopicNames: []string{"t"}}}, &InitProducerID{}}[i%2]
		if _, err := e.RoundTrip(ctx, request); err == nil {
			answered++
		}
		cancel()
	}
	if answered == 0 {
		t.Error("no request was answered")
	}
	t.Logf("%d requests were answered", answered)
}

// Servers of other protocols behind the address are said to be no Kafka, or to end the connection; nothing panics.
// Seen to fail without the guard: the lengths that "HTTP" and "-ERR" are take more memory than a limit of 5 GB allows,
// and the one below zero panics the library. With only the bound on the length left out, the test waits for what "HTTP"
// is the length of, until a timeout that it does not take for the answer.
func TestOtherServersAreNoKafka(t *testing.T) {
	for name, said := range map[string]string{
		"http":     "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n400 Bad Request",
		"redis":    "-ERR unknown command '\x00\x00\x00'\r\n",
		"postgres": "E\x00\x00\x00\x40SFATAL\x00C0A000\x00Munsupported frontend protocol\x00\x00",
		"tls":      "\x15\x03\x01\x00\x02\x02\x46",
		"smtp":     "220 mail.example.com ESMTP\r\n",
		"nats":     `INFO {"server_id":"N"}` + "\r\n",
		"amqp":     "AMQP\x00\x00\x09\x01",
		"negative": "\xff\xff\xff\xf0\x00\x00\x00\x01",
		"empty":    "\x00\x00\x00\x00",
	} {
		t.Run(name, func(t *testing.T) {
			address := serve(t, func(protocol.ApiKey, int16, int32) []byte { return []byte(said) })
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			_, err := newEndpoint(t, address).RoundTrip(ctx, Direct{&metadata.Request{TopicNames: []string{"t"}}})
			if err == nil {
				t.Fatal("got an answer")
			}
			if name == "http" && !strings.Contains(err.Error(), "does not speak Kafka") {
				t.Errorf("got %v, want that it does not speak Kafka's protocol", err)
			}
		})
	}
}
