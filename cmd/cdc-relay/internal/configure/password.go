package configure

import (
	"net/url"
	"regexp"
	"strings"

	"github.com/cdc-relay/cdc-relay/config"
)

// lists are the keys that hold several addresses with commas. In all others a comma belongs to the address: to a
// password, or between the hosts of one Postgres.
var lists = []string{"nats.url", "redis.url"}

// passwordPair is a password among key=value pairs; in a value without quotes a backslash keeps a space in it.
var passwordPair = regexp.MustCompile(`(?is)\s*\b(ssl)?password\s*=\s*('(?:[^'\\]|\\.)*'|(?:[^\s\\]|\\.)*)`)

// natsLogin matches the login before a host of nats.url: a user without a password is a token there, to be kept secret.
var natsLogin = regexp.MustCompile(`(://|,)[^/@,]*@`)

// withoutPassword is an address (a URL, key=value pairs, in a list several URLs with commas) without the passwords in
// it, and whether there were any. What is not clean is no such address, or may still hold one: it must not be written.
func withoutPassword(text string, list bool) (without string, had, clean bool) {
	if !strings.Contains(text, "://") {
		text = strings.TrimSpace(text)
		without = strings.TrimSpace(passwordPair.ReplaceAllString(text, ""))
		return without, without != text, isClean(without)
	}
	parts := []string{text}
	if list {
		parts = strings.Split(text, ",")
	}
	for i, one := range parts {
		var has bool
		if parts[i], has, clean = urlWithoutPassword(one); !clean {
			return "", had, false
		}
		had = had || has
	}
	if without = strings.Join(parts, ","); !isClean(without) {
		return "", had, false
	}
	return without, had, true
}

// isClean asks who masks passwords in messages, by another way: what one of the two overlooks is not written.
func isClean(text string) bool { return config.MaskURL(text) == text }

func urlWithoutPassword(text string) (without string, had, ok bool) {
	const none = "none://" // before a further host of a list, which has no scheme
	whole := text
	if !strings.Contains(text, "://") {
		whole = none + text
	}
	u, err := url.Parse(whole)
	if err != nil {
		return "", false, false
	}
	if _, had = u.User.Password(); had {
		u.User = url.User(u.User.Username())
	}
	q := u.Query()
	for _, name := range []string{"password", "sslpassword"} {
		if q.Has(name) {
			q.Del(name)
			had = true
		}
	}
	if !had {
		return text, false, isClean(text)
	}
	u.RawQuery = q.Encode()
	return strings.TrimPrefix(u.String(), none), true, true
}
