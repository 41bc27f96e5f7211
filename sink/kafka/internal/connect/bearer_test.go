package connect

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"time"
)

// Breaks it catches: a message that brokers other than Kafka do not take: RFC 7628 has an example of it, in section
// 4.1. Seen to fail with one \x01 at the end.
func TestTheFirstMessageIsThatOfTheRFC(t *testing.T) {
	s := &SASL{Mechanism: OAuthBearer, TokenFile: "f",
		Extensions: map[string]string{"port": "143", "host": "server.example.com"}}
	talk, err := s.bearer("vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==")
	if err != nil {
		t.Fatal(err)
	}
	const want = "n,,\x01auth=Bearer vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg==\x01" +
		"host=server.example.com\x01port=143\x01\x01"
	if got, done, err := talk(""); got != want || done || err != nil {
		t.Errorf("got %q, %v, %v, want %q", got, done, err, want)
	}
	if got, done, err := talk(""); got != "" || !done || err != nil {
		t.Errorf("after no challenge: got %q, %v, %v, want that it is done", got, done, err)
	}
}

// Breaks it catches: a refusal taken for a login, by a broker that says why and then nothing; the token in the error.
// Seen to fail with every second answer taken for the last, and with the broker's words as they are.
func TestABrokersReasonEndsTheLogin(t *testing.T) {
	s := &SASL{Mechanism: OAuthBearer, TokenFile: "f"}
	talk, err := s.bearer("hunter2")
	if err != nil {
		t.Fatal(err)
	}
	_, _, _ = talk("")
	why := `{"status":"invalid_token","text":"` + strings.Repeat(" ", 261) + `hunter2"}` // it is cut within the token
	if got, done, err := talk(why); got != "\x01" || done || err != nil {
		t.Errorf("after the reason: got %q, %v, %v, want \\x01", got, done, err)
	}
	_, done, err := talk("")
	var refused *LoginError
	if done || !errors.As(err, &refused) || !strings.Contains(err.Error(), "invalid_token") ||
		!strings.Contains(err.Error(), "kafka.sasl.token_file") || strings.Contains(err.Error(), "hunt") {
		t.Errorf("at the end: got %v, %v, want a login error with the reason and without the token", done, err)
	}
}

// Seen to fail with the whole payload printed.
func TestATokenIsDescribedWithoutWhatLogsIn(t *testing.T) {
	now := time.Date(2027, 1, 31, 12, 0, 0, 0, time.UTC)
	jwt := func(payload string) string {
		return "e30." + base64.RawURLEncoding.EncodeToString([]byte(payload)) + ".hunter2"
	}
	for token, want := range map[string]string{
		"hunter2":       "which is not a JWT",
		"a.hunter2.c":   "which is not a JWT",
		jwt("hunter2"):  "which is not a JWT",
		jwt(`{"a": 1}`): `a JWT of the issuer "" for the audience "<nil>" and the subject ""`,
		jwt(`{"iss": "i", "aud": ["a", "b"], "sub": "s", "exp": 1801396799, "secret": "hunter2"}`): `a JWT of the ` +
			`issuer "i" for the audience "[a b]" and the subject "s" that expired at 2027-01-31T11:59:59Z`,
		jwt(`{"iss": "i", "aud": "a", "sub": "s", "exp": 1801396801.5}`): `a JWT of the issuer "i" for the audience ` +
			`"a" and the subject "s" that is valid until 2027-01-31T12:00:01Z`,
	} {
		if got := describe(token, now); got != want {
			t.Errorf("%s: got %s, want %s", token, got, want)
		}
	}
}
