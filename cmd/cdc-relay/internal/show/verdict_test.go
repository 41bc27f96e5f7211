package show

import (
	"bytes"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/internal/doctor/verify/audit"
)

// Break it catches: a repair that calls missing what it has just published again.
func TestVerdictOfARepairTellsWhatIsStillMissing(t *testing.T) {
	repaired := int64(3)
	var out bytes.Buffer
	v := audit.Verdict{Missing: 5, Lost: 4, Pending: 1, Repaired: &repaired}
	Verdict(&cli.App{Streams: cli.Streams{Out: &out}}, &v)
	for _, want := range []string{"were missing   5  before the repair", "repaired       3 ", "still missing  2"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("got\n%s\nwant %q", out.String(), want)
		}
	}
}
