package kafka

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/kafka/internal/codes"
)

// wantedMeanings has the outcome of each code for the engine, written independently of the table under test: was it
// written, whose trouble is it, must the next attempt wait, and the class of a guilty record. The sequence
// codes appear as they are without an uncertain attempt, the odd ones as at their first answer.
var wantedMeanings = map[int16]struct {
	verdict sink.Verdict
	trouble sink.Trouble
	pause   bool
	class   outbox.ErrorClass
}{
	-1:  {sink.Unknown, sink.PartitionTrouble, true, outbox.Transient},
	2:   {sink.NotWritten, sink.PartitionTrouble, true, outbox.Transient},
	3:   {sink.Unknown, sink.TopicTrouble, true, ""},
	5:   {sink.NotWritten, sink.PartitionTrouble, true, ""},
	6:   {sink.Unknown, sink.PartitionTrouble, false, ""},
	7:   {sink.Unknown, sink.PartitionTrouble, true, ""},
	8:   {sink.NotWritten, sink.ClusterTrouble, true, ""},
	9:   {sink.NotWritten, sink.PartitionTrouble, true, ""},
	10:  {sink.Refused, sink.NoTrouble, false, outbox.Permanent},
	13:  {sink.Unknown, sink.ClusterTrouble, true, ""},
	14:  {sink.NotWritten, sink.ClusterTrouble, true, ""},
	15:  {sink.NotWritten, sink.ClusterTrouble, true, ""},
	16:  {sink.NotWritten, sink.ClusterTrouble, true, ""},
	17:  {sink.NotWritten, sink.TopicTrouble, true, ""},
	18:  {sink.Refused, sink.NoTrouble, false, outbox.Permanent},
	19:  {sink.NotWritten, sink.PartitionTrouble, true, ""},
	20:  {sink.Unknown, sink.PartitionTrouble, true, ""},
	21:  {sink.NotWritten, sink.ConfigurationTrouble, true, ""},
	29:  {sink.NotWritten, sink.TopicTrouble, true, ""},
	31:  {sink.NotWritten, sink.ConfigurationTrouble, true, ""},
	32:  {sink.Refused, sink.NoTrouble, false, outbox.Transient},
	33:  {sink.NotWritten, sink.ConfigurationTrouble, true, ""},
	34:  {sink.NotWritten, sink.ConfigurationTrouble, true, ""},
	35:  {sink.NotWritten, sink.ConfigurationTrouble, true, ""},
	36:  {sink.NotWritten, sink.TopicTrouble, true, ""},
	37:  {sink.NotWritten, sink.TopicTrouble, true, ""},
	38:  {sink.NotWritten, sink.TopicTrouble, true, ""},
	40:  {sink.NotWritten, sink.TopicTrouble, true, ""},
	41:  {sink.NotWritten, sink.ClusterTrouble, true, ""},
	42:  {sink.NotWritten, sink.ConfigurationTrouble, true, ""},
	43:  {sink.NotWritten, sink.ConfigurationTrouble, true, ""},
	44:  {sink.Refused, sink.NoTrouble, false, outbox.Transient},
	45:  {sink.NotWritten, sink.PartitionTrouble, false, ""},
	46:  {sink.Accepted, sink.NoTrouble, false, ""},
	47:  {sink.NotWritten, sink.PartitionTrouble, false, ""},
	49:  {sink.NotWritten, sink.PartitionTrouble, false, ""},
	51:  {sink.NotWritten, sink.ClusterTrouble, true, ""},
	53:  {sink.NotWritten, sink.ConfigurationTrouble, true, ""},
	54:  {sink.NotWritten, sink.ConfigurationTrouble, true, ""},
	56:  {sink.Unknown, sink.PartitionTrouble, true, ""},
	58:  {sink.NotWritten, sink.ConfigurationTrouble, true, ""},
	59:  {sink.NotWritten, sink.PartitionTrouble, false, ""},
	72:  {sink.NotWritten, sink.PartitionTrouble, true, ""},
	74:  {sink.NotWritten, sink.PartitionTrouble, false, ""},
	75:  {sink.NotWritten, sink.PartitionTrouble, true, ""},
	76:  {sink.NotWritten, sink.ConfigurationTrouble, true, ""},
	77:  {sink.Unknown, sink.ClusterTrouble, true, ""},
	87:  {sink.Refused, sink.NoTrouble, false, outbox.Permanent},
	89:  {sink.NotWritten, sink.ClusterTrouble, true, ""},
	90:  {sink.NotWritten, sink.PartitionTrouble, false, ""},
	100: {sink.Unknown, sink.TopicTrouble, true, ""},
	103: {sink.Unknown, sink.TopicTrouble, true, ""},
	129: {sink.NotWritten, sink.ClusterTrouble, true, ""},
	999: {sink.Unknown, sink.PartitionTrouble, true, outbox.Transient}, // no code of today
}

// Breaks when a code changes its meaning or loses its row, when the driver does something else than the table says, and
// when a batch that got the code is not written exactly once in the end.
func TestEachCodeOfABroker(t *testing.T) {
	for code := int16(-1); code < 999; code++ {
		known := !strings.HasPrefix(codes.Of(code).Name, "CODE_")
		if _, wanted := wantedMeanings[code]; known && !wanted && code != 0 {
			t.Errorf("code %d has no row in this test", code)
		}
	}
	c := newFake(t)
	d := newDriver(t, c.ListenAddrs(), nil)
	offset := int64(0)
	for code, want := range wantedMeanings {
		t.Run(fmt.Sprintf("%d_%s", code, codes.Of(code).Name), func(t *testing.T) {
			c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: &kerr.Error{Code: code}})
			partition := int32(1)
			if want.verdict == sink.Accepted {
				partition = 2 // kfake did not append: there the next sequence is a gap
			}
			b := newBatch(d, "t", partition, "a", "b")
			o := send(t, d, b)
			if o.Verdict != sink.Accepted && o.Code != codes.Of(code).Name {
				t.Errorf("code of the outcome: got %q, want the broker's name %s", o.Code, codes.Of(code).Name)
			}
			if o.Verdict != want.verdict || o.Trouble != want.trouble || o.Pause != want.pause {
				t.Errorf("outcome: got verdict %d, trouble %d, pause %v (%v); want %d, %d, %v", o.Verdict, o.Trouble, o.Pause,
					o.Err, want.verdict, want.trouble, want.pause)
			}
			switch o.Verdict {
			case sink.Refused:
				if len(o.Reasons) != 1 || o.Reasons[0].Class != want.class || o.Reasons[0].Doubtful ||
					o.Reasons[0].Code != codes.Of(code).Name || o.Reasons[0].Text == "" || len(o.Guilty) != 0 {
					t.Errorf("refusal: got %+v, want one %s reason with code and text, and nobody named", o, want.class)
				}
				return
			case sink.Accepted:
				return
			}
			if o.Err == nil {
				t.Error("no cause was given")
			}
			wantAccepted(t, send(t, d, b), offset)
			offset += 2
		})
	}
	if got := d.Stats().PossibleDuplicates; got != 0 {
		t.Errorf("possible duplicates: got %d, want 0", got)
	}
}

// Breaks when a batch whose bytes were spoiled in memory is sent again as it is, forever, or when no one is told.
func TestCorruptBatchIsEncodedAgain(t *testing.T) {
	c := newFake(t)
	d := newDriver(t, c.ListenAddrs(), nil)
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.CorruptMessage, Count: 1})
	b := newBatch(d, "t", 0, "aaaa", "bbbb")
	o := send(t, d, b)
	wantVerdict(t, o, sink.NotWritten)
	if text := o.Err.Error(); !strings.Contains(text, "CORRUPT_MESSAGE") || !strings.Contains(text, "see its log") {
		t.Errorf("error: got %q, want the code and where to look", text)
	}
	spoiled := b.State.(*attempt).bytes
	for i := range spoiled[:cap(spoiled)] {
		spoiled[:cap(spoiled)][i] ^= 0xff
	}
	wantAccepted(t, send(t, d, b), 0)
	wantLog(t, c.ListenAddrs(), "t", 0, "aaaa", "bbbb")
	if got := d.Stats().UnexpectedAnswers; got != 1 {
		t.Errorf("unexpected answers: got %d, want 1", got)
	}
}

// Breaks when a code whose trouble is no one's fault can blame a record, or one that can has no class.
func TestOnlyRefusalsAndOddAnswersBlameARecord(t *testing.T) {
	for code := range wantedMeanings {
		m := codes.Of(code)
		if blames := m.Verdict == sink.Refused || m.React&codes.Unexpected != 0; blames != (m.Class != codes.Nobody) ||
			m.Class != wantedMeanings[code].class {
			t.Errorf("class of %s (%d): got %q, want %q", m.Name, code, m.Class, wantedMeanings[code].class)
		}
		if (m.Verdict == sink.Refused) != (m.Trouble == sink.NoTrouble && m.Verdict != sink.Accepted) {
			t.Errorf("%s (%d): a refusal is a record's, anything else is somebody's trouble", m.Name, code)
		}
	}
}
