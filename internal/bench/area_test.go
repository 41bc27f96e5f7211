package bench

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/config"
)

// Break it catches: rows that the relay has deleted before the judge reads them, so that a record that was lost or
// changed has nothing to be missed by. Seen to fail with what the user set taken as it is.
func TestTheJudgeHasRowsToCompareWith(t *testing.T) {
	for set, want := range map[string]string{config.AfterPublishKeep: config.AfterPublishKeep,
		config.AfterPublishMark: config.AfterPublishMark, config.AfterPublishDelete: config.AfterPublishMark} {
		cfg := config.Default()
		cfg.Outbox.AfterPublish = set
		if got := (&area{name: "bench"}).configure(cfg).Outbox.AfterPublish; got != want {
			t.Errorf("after_publish %s: got %s, want %s", set, got, want)
		}
	}
}
