package sink_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/test/sinktest"
)

// exchanges is a broker that calls its topics exchanges.
type exchanges struct{ *sinktest.Broker }

func (exchanges) Word() string { return "exchange" }

// Break it catches: a topic and a partition in the text about a broker that has neither.
func TestTroubleIsToldInTheBrokersWords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := sinktest.NewBroker()
		b.SetTopic(topic, 1)
		b.Answer = func(sinktest.Attempt) sinktest.Plan {
			return sinktest.Plan{Outcome: trouble(sink.NotWritten, sink.PartitionTrouble, true)}
		}
		e := sink.New(exchanges{b}, sink.Config{})
		defer func() {
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			_ = e.Close(ended)
		}()
		if _, err := e.Submit(t.Context(), in(1)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got, want := e.Status().Reason, `exchange "topic", failed attempts: `; !strings.HasPrefix(got, want) {
			t.Errorf("reason: got %q, want %q", got, want)
		}
	})
}
