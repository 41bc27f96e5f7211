package connect

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// bearer is our side of OAUTHBEARER (RFC 7628, with the extensions of KIP-342). A broker that takes the token answers
// nothing. One that does not says why in JSON, wants one more byte, and ends the login.
func (s *SASL) bearer(token string) (func(challenge string) (response string, done bool, err error), error) {
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, &LoginError{What: "it contains spaces, line breaks or other characters that no token has",
			Check: s.source().Key()}

	}
	const end = "\x01"
	said, why := 0, ""
	return func(challenge string) (string, bool, error) {
		said++
		switch {
		case said == 1:
			message := "n,," + end + "auth=Bearer " + token + end
			for _, name := range slices.Sorted(maps.Keys(s.Extensions)) {
				message += name + "=" + s.Extensions[name] + end
			}
			return message + end, false, nil
		case said == 2 && challenge == "":
			return "", true, nil
		case said == 2:
			why = challenge
			return end, false, nil
		}
		return "", false, s.rejected(token, fmt.Errorf("%.300q", strings.ReplaceAll(why, token, "…")))
	}, nil
}

// rejected is a login that the broker refused. Where the next password may be another, it is asked for again.
func (s *SASL) rejected(password string, err error) error {
	s.source().Refused()
	what := fmt.Sprintf("the broker rejects the login of %s with %s", s.Username, s.Mechanism)
	if s.Mechanism == OAuthBearer {
		what = "the broker rejects the token, " + describe(password, time.Now())
		if text := err.Error(); strings.Contains(text, password) {
			err = fmt.Errorf("%s", strings.ReplaceAll(text, password, "…"))
		}
	}
	return &LoginError{What: what, Check: s.keys(), Err: err}
}

// describe says of a token what brokers look at, and nothing that could be used to log in. What it says is not proved:
// no signature is checked.
func describe(token string, now time.Time) string {
	var claims struct {
		Issuer   string      `json:"iss"`
		Audience any         `json:"aud"`
		Subject  string      `json:"sub"`
		Expires  json.Number `json:"exp"`
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return "which is not a JWT"
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(payload, &claims) != nil {
		return "which is not a JWT"
	}
	text := fmt.Sprintf("a JWT of the issuer %.200q for the audience %.200q and the subject %.200q", claims.Issuer,
		fmt.Sprint(claims.Audience), claims.Subject)
	seconds, err := claims.Expires.Float64()
	if err != nil {
		return text
	}
	expires := time.Unix(int64(seconds), 0)
	state := "is valid until"
	if now.After(expires) {
		state = "expired at"
	}
	return fmt.Sprintf("%s that %s %s", text, state, expires.UTC().Format(time.RFC3339))
}
