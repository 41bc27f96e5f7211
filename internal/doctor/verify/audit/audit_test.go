package audit

import (
	"strings"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/doctor/verify"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// Seen to fail with columns not mapped.
func TestTemplatesRenderAsTheRelayDoes(t *testing.T) {
	cfg := config.Default()
	cfg.Outbox.Columns.AggregateType = "kind"
	cfg.Message.Topic, cfg.Message.Key = "t.{aggregate_type}-{tenant}", "{aggregate_id}"
	templates, err := newTemplates(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(templates.columns, " "); got != "kind tenant aggregate_id" {
		t.Errorf("columns: got %q", got)
	}
	kind := "order"
	row := []*string{&kind, nil, nil}
	if topic, key := templates.topic.render(row), templates.key.render(row); topic != "t.order-" || key != "" {
		t.Errorf("got topic %q and key %q, want NULL as empty text", topic, key)
	}
}

// Breaks it catches: a composed aggregate that is read as a column; one of nothing that is a key of its literals. Seen
// to fail with what is composed rendered as its parts.
func TestTemplatesComposeAggregatesAsTheRelayDoes(t *testing.T) {
	cfg := config.Default()
	cfg.Outbox.Columns.AggregateType, cfg.Outbox.Columns.AggregateID = "", "{tenant}:{order_id}"
	cfg.Message.Topic, cfg.Message.Key = "t.{aggregate_type}", "k{aggregate_id}"
	templates, err := newTemplates(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(templates.columns, " "); got != "tenant order_id" {
		t.Errorf("columns: got %q", got)
	}
	seventeen := "17"
	for row, want := range map[[2]*string]string{{nil, &seventeen}: "k:17", {nil, nil}: ""} {
		if topic, key := templates.topic.render(row[:]), templates.key.ofColumns(row[:]); topic != "t." || key != want {
			t.Errorf("got topic %q and key %q, want t. and %q", topic, key, want)
		}
	}
}

// Seen to fail with the header not looked at.
func TestRecordsOfOtherRelaysAreNotOurs(t *testing.T) {
	r := topicReader{cfg: config.Default(), idHeader: "id",
		sources: []string{outbox.Source("7", 1, 5), outbox.Source("7", 1, 3)}}
	for header, want := range map[string]bool{"7/1/3": true, "7/2/3": true, "8/1/3": false, "7/1/4": false, "7/1/5": true,
		"strange": false} {
		_, ours := r.record(new(partitionEnd),
			stored{Headers: headersOf([]kafkago.Header{{Key: "x-outbox-source", Value: []byte(header)}})})
		if ours != want {
			t.Errorf("%s: got ours %t, want %t", header, ours, want)
		}
	}
}

// Seen to fail with the cleanup policy not looked at.
func TestWhatATopicDoesNotHoldMayHaveBeenRemoved(t *testing.T) {
	r := topicReader{
		topics: map[string][]*partitionEnd{"plain": {{partition: 1, first: 10, unread: -1}, {partition: 2, unread: 50}},
			"compact": {{unread: -1}}},
		thins: map[string]bool{"compact": true},
	}
	for at, want := range map[verify.Place]verify.Absence{
		{Topic: "plain", Partition: 1, Offset: 9}: verify.Removed, {Topic: "plain", Partition: 1, Offset: 10}: verify.Gone,
		{Topic: "plain", Partition: 2, Offset: 49}: verify.Gone, {Topic: "plain", Partition: 2, Offset: 50}: verify.Unread,
		{Topic: "plain", Partition: 7, Offset: 9}: verify.Gone, {Topic: "compact", Offset: 9}: verify.Removed,
		{Topic: "absent", Offset: 9}: verify.Gone,
	} {
		if got := r.why(at); got != want {
			t.Errorf("%v: got %d, want %d", at, got, want)
		}
	}
}

// Of most events in a stream of RabbitMQ the journal knows the time alone. Breaks it catches: what retention dropped
// called lost, or what is lost called dropped. Seen to fail with the lag of the journal left out, and with a stream
// that was never cut taken for one that was.
func TestAnEventWithoutAnOffsetIsJudgedByTime(t *testing.T) {
	oldest := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	whole := []*partitionEnd{{oldest: oldest, unread: -1}}
	r := topicReader{topics: map[string][]*partitionEnd{
		"whole": whole, "cut": {{first: 7, oldest: oldest, unread: -1}},
		"foreign": {{unread: -1, nameless: nameless{count: 1, first: 3, last: 3}}},
	}}
	for _, c := range []struct {
		topic string
		after time.Duration // oldest
		want  verify.Absence
	}{
		{"whole", -time.Hour, verify.Gone}, {"cut", -time.Hour, verify.Removed}, {"cut", journalLag / 2, verify.Removed},
		{"cut", 2 * journalLag, verify.Gone}, {"foreign", 0, verify.Unread}, {"absent", 0, verify.Gone},
	} {
		if got := r.why(verify.Somewhere(c.topic, oldest.Add(c.after))); got != c.want {
			t.Errorf("%s, %v after its oldest: got %d, want %d", c.topic, c.after, got, c.want)
		}
	}
}

// Breaks it catches: what clients deleted called lost; the record at offset 0, where no one deleted anything, not
// called so. Seen to fail with deletions not looked at, and with none taken for one at 0.
func TestWhatClientsDeletedIsNotLost(t *testing.T) {
	r := topicReader{topics: map[string][]*partitionEnd{"t": {{first: 5, deleted: 20, unread: -1}}}}
	for offset, want := range map[int64]verify.Absence{4: verify.Removed, 20: verify.Unread, 21: verify.Gone} {
		if got := r.why(verify.Place{Topic: "t", Offset: offset}); got != want {
			t.Errorf("offset %d: got %d, want %d", offset, got, want)
		}
	}
	r.topics["untouched"] = []*partitionEnd{{unread: -1}}
	if got := r.why(verify.Place{Topic: "untouched"}); got != verify.Gone {
		t.Errorf("offset 0 of a topic that nobody deleted from: got %d, want %d", got, verify.Gone)
	}
}

// Break it catches: "rows 0, missing 0" as if all was compared, where the relay deletes what it has published. Seen to
// fail without the note.
func TestRowsThatTheRelayDeletesAreSaidNotToBeCompared(t *testing.T) {
	for _, c := range []struct {
		after     string
		retention config.Duration
		want      string
	}{
		{config.AfterPublishMark, 0, ""}, {config.AfterPublishKeep, 0, ""},
		{config.AfterPublishMark, config.Duration(time.Hour), "outbox.retention is 1h"},
		{config.AfterPublishDelete, config.Duration(time.Hour), "outbox.retention is 1h"},
		{config.AfterPublishDelete, 0, "outbox.after_publish is delete"},
	} {
		cfg := config.Default()
		cfg.Outbox.AfterPublish, cfg.Outbox.Retention = c.after, c.retention
		if got := strings.Join(unseen(cfg), " "); !strings.HasPrefix(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%s, %v: got %q, want %q", c.after, c.retention, got, c.want)
		}
	}
}
