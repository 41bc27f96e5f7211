package message

import (
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// Breaks it catches: a reason that does not say which value is wrong, and what it is. Seen to fail with "is none".
func TestHeaderThatIsNoStringIsNamedWithWhatItIs(t *testing.T) {
	for text, want := range map[string]string{
		`{"tenant": 7}`: `"tenant" is a number`, `{"tenant": null}`: `"tenant" is null`,
		`{"tenant": true}`: `"tenant" is a boolean`, `{"tenant": {}}`: `"tenant" is an object or a list`,
	} {
		err := new(Encoder).rowHeaders(new(outbox.Headers), []byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}
