package sink_test

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/test/sinktest"
)

// frozenDriver is a broker that never answers a request with the partition in it.
type frozenDriver struct {
	*sinktest.Broker
	partition int32
}

func (f frozenDriver) Produce(ctx context.Context, node int32, batches []*sink.Batch) {
	if !slices.ContainsFunc(batches, func(b *sink.Batch) bool { return b.Partition == f.partition }) {
		f.Broker.Produce(ctx, node, batches)
		return
	}
	select {
	case <-time.After(10 * time.Second):
	case <-ctx.Done():
	}
	for _, b := range batches {
		b.Outcome = sink.Outcome{Verdict: sink.Unknown, Trouble: sink.ClusterTrouble, Pause: true,
			Err: errors.New("no answer")}
	}
}
