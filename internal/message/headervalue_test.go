package message

import (
	"fmt"
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

// A json column keeps a name that an object has twice. Breaks it catches: a header that is there twice, of which one
// reader takes the first value and another the last, or that a map of AMQP 1.0 cannot hold.
func TestEachNameIsOneHeaderWithItsLastValue(t *testing.T) {
	many := strings.Repeat(`"m": "0", `, mostPlain)
	for text, want := range map[string]string{
		`{"a": "1", "b": "2", "a": "3"}`:                   "[b=2 a=3]",
		`{"a": "1", "\u0061": "2", "b": "\n"}`:             "[a=2 b=\n]",
		`{"a": "1", "a": "1"}`:                             "[a=1]",
		`{"a": "1", "A": "2", "": "3"}`:                    "[a=1 A=2 =3]",
		`{` + many + `"a": "1", "m": "2", "a": "3"}`:       "[m=2 a=3]",
		`{"id": "mine", "a": "1", "id": "mine", "a": "2"}`: "[a=2]",
	} {
		var h outbox.Headers
		x := &Encoder{reserved: []string{"id"}, hooks: Hooks{Shadowed: func() {}}}
		if err := x.rowHeaders(&h, []byte(text)); err != nil || fmt.Sprint(headerList(h)) != want {
			t.Errorf("%.60s: got %v, %v, want %s", text, headerList(h), err, want)
		}
	}
}
