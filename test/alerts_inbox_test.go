package test

import (
	"os"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// inboxMetrics are those that docs/inbox.md names. A test of inbox/prom holds its own names.
func inboxMetrics(t *testing.T) map[string]bool {
	t.Helper()
	text, err := os.ReadFile("../docs/inbox.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Metrics\n")
	section, _, _ = strings.Cut(section, "\n## ")
	known := map[string]bool{}
	for _, name := range metricName.FindAllString(section, -1) {
		known[name] = true
	}
	if len(known) < 18 {
		t.Fatalf("docs/inbox.md: got %d metrics, want all", len(known))
	}
	return known
}

// The same of the consumers' rules. Seen to fail with the limit of the lag doubled, a metric's name with a letter more,
// and a section of the page renamed.
func TestInboxAlertRulesFireAndStaySilent(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	judgeRules(t, "inbox-rules", inboxMetrics(t), []string{
		"InboxBreakerOpen", "InboxBusy", "InboxDeadLettersOpen", "InboxErrors", "InboxLag", "InboxNoHeartbeat",
		"InboxNotInGroup", "InboxRecordsLost", "InboxRetriesGrowing", "InboxSlowHandler",
	})
}
