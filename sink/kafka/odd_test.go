package kafka

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/kafka/internal/codes"
)

// oddBench is a driver whose broker can be made to answer oddly to t/0, and what its hooks were told.
func oddBench(t *testing.T, code *kerr.Error) (*Driver, func() *kfake.FaultHandle, *observed) {
	t.Helper()
	c := newFake(t)
	o := new(observed)
	d := newDriver(t, c.ListenAddrs(), func(c *Config) { c.Hooks = o.hooks() })
	wantAccepted(t, send(t, d, newBatch(d, "t", 1, "elsewhere")), 0)
	return d, func() *kfake.FaultHandle {
		return c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "t", Partitions: []int32{0}, Err: code, Count: -1})
	}, o
}

// tries sends the batch until it is refused and says how often it was sent.
func tries(t *testing.T, d *Driver, b *sink.Batch) int {
	t.Helper()
	for n := 1; n <= 2*oddPatience; n++ {
		if o := send(t, d, b); o.Verdict == sink.Refused {
			return n
		}
	}
	t.Fatalf("outcome: got %+v, want it refused in the end", b.Outcome)
	return 0
}

// Breaks when an odd answer is believed before it was repeated, or goes on forever; when one that may have been
// written is cut again under its range, or one that cannot be counts as a possible duplicate. Seen to fail with the
// first odd answer believed.
func TestOddAnswersAreBounded(t *testing.T) {
	for _, c := range []struct {
		code       *kerr.Error
		duplicates uint64
	}{{kerr.CorruptMessage, 0}, {kerr.UnknownServerError, 3}, {&kerr.Error{Code: 999}, 3}} {
		t.Run(c.code.Message, func(t *testing.T) {
			d, spoil, o := oddBench(t, c.code)
			fault := spoil()
			b := newBatch(d, "t", 0, "a", "b", "c")
			if n := tries(t, d, b); n != oddPatience {
				t.Errorf("refused after %d tries, want %d while nothing else is taken", n, oddPatience)
			}
			if got := d.Stats(); got.PossibleDuplicates != c.duplicates || got.UnexpectedAnswers != oddPatience {
				t.Errorf("stats: got %+v, want %d possible duplicates and %d odd answers", got, c.duplicates, oddPatience)
			}
			if len(o.odds) != 1 || o.odds[0].Topic != "t" || !strings.Contains(o.odds[0].Err.Error(), "see its log") {
				t.Errorf("told: got %+v, want one word about t that says where to look", o.odds)
			}
			half := newBatch(d, "t", 0, "a")
			half.Narrowed = true
			if n := tries(t, d, half); n != oddNarrowed {
				t.Errorf("a narrowed batch was refused after %d tries, want %d", n, oddNarrowed)
			}
			if r := half.Outcome.Reasons[0]; !r.Doubtful || r.Class != outbox.Transient || r.Code != codes.Of(c.code.Code).Name {
				t.Errorf("reason: got %+v, want a doubtful one: nothing else of the partition was taken", r)
			}
			fault.Remove()
			wantAccepted(t, send(t, d, newBatch(d, "t", 0, "a", "b", "c")), 0)
		})
	}
}

// Breaks when a partition is taken to be at fault although it takes others, or a record although it takes none. Seen to
// fail with no refusal doubtful.
func TestOddRecordIsGuiltyWhenItsPartitionTakesOthers(t *testing.T) {
	d, spoil, _ := oddBench(t, kerr.UnknownServerError)
	fault := spoil()
	odd := func(want bool, why string) {
		t.Helper()
		b := newBatch(d, "t", 0, "a")
		began := time.Now()
		for send(t, d, b).Verdict != sink.Refused {
			if send(t, d, newBatch(d, "t", 1, "elsewhere")); time.Since(began) > patience {
				t.Fatalf("%s: not refused", why)
			}
		}
		if got := !b.Outcome.Reasons[0].Doubtful; got != want {
			t.Errorf("%s: guilty %t, want %t", why, got, want)
		}
	}
	odd(false, "first")
	odd(false, "nothing taken since")
	fault.Remove()
	wantVerdict(t, send(t, d, newBatch(d, "t", 0, "b")), sink.Accepted)
	fault = spoil()
	odd(true, "another one taken since")
	odd(false, "nothing taken since then")
	fault.Remove()
}
