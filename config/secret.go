package config

import (
	"reflect"
	"regexp"
	"strings"
)

const masked = "xxxxx" // what net/url and pgx put in the place of a password, too

var (
	// From the colon after the user to the last @ anywhere: a password with an unescaped @, :, /, ? or # is wrong in a
	// URL, but must not leak for that. An @ in the query makes it hide more than the password, which does no harm.
	userinfo = regexp.MustCompile(`(?s)(://[^:@]*):.*@`)
	// The same where there is an @ in the name of the user, which Go and pgx take; up to the next URL of a list. What
	// begins with a number and a comma is a port, and another host.
	userinfoOfAt = regexp.MustCompile(`(://[^:/?#\s]*@[^:/?#\s]*):(\d+,)?(?:[^:]|:[^/]|:/[^/])*@`)
	// The same before a further host of a list, which has no scheme.
	userinfoOfHost = regexp.MustCompile(`(,[^:/?#,@\s]+):[^,/]*@`)
	// password=… of a URL's query.
	passwordQuery = regexp.MustCompile(`(?i)((?:ssl)?password\s*=\s*)[^\s&]+`)
	// password=… of a key=value string, where it is quoted with ' or ends at a space that no backslash keeps.
	passwordPair = regexp.MustCompile(`(?is)((?:ssl)?password\s*=\s*)(?:'(?:[^'\\]|\\.)*'?)?(?:[^\s\\]|\\.?)*`)
	isURL        = regexp.MustCompile(`^\s*\w[\w+.-]*://`)
	// A user without a password is a token for NATS.
	token = regexp.MustCompile(`(://)[^:/?#@\s]+@`)
)

// secretPair is a parameter that holds a secret, where none belongs, as a file or a variable writes it.
var secretPair = regexp.MustCompile(`(?i)(\w*(?:secret|password|assertion|token)\w*\s*[:=]\s*)[^,}]*`)

// MaskURL replaces every password in a connection URL or key=value string, well-formed or not.
func MaskURL(s string) string {
	hidden := userinfo.ReplaceAllString(s, "$1:"+masked+"@")
	hidden = userinfoOfAt.ReplaceAllStringFunc(hidden, func(found string) string {
		if m := userinfoOfAt.FindStringSubmatch(found); m[2] == "" {
			return m[1] + ":" + masked + "@"
		}
		return found
	})
	if isURL.MatchString(s) {
		hidden = userinfoOfHost.ReplaceAllString(hidden, "$1:"+masked+"@")
		return passwordQuery.ReplaceAllString(hidden, "${1}"+masked)
	}
	return passwordPair.ReplaceAllString(hidden, "${1}"+masked)
}

const (
	endpointsKey  = "webhook.endpoints" // its values are URLs
	parametersKey = "kafka.sasl.oauth.parameters"
)

// query is that of a URL, up to the next one in a list.
var query = regexp.MustCompile(`\?[^\s,}]*`)

// maskEndpoint hides what follows the path, too: receivers' tokens are there.
func maskEndpoint(s string) string { return query.ReplaceAllString(MaskURL(s), "?"+masked) }

// mask hides what is secret in the value of a key, for messages.
func (k Key) mask(value string) string {
	switch last := lastWord(k.Name); {
	case k.Name == "webhook.url":
		return maskEndpoint(value)
	case k.Name == "nats.url":
		return token.ReplaceAllString(MaskURL(value), "${1}"+masked+"@")
	case strings.HasSuffix(last, "url"):
		return MaskURL(value)
	case strings.HasSuffix(last, "password"), strings.HasSuffix(last, "secret"):
		return masked
	case k.Name == endpointsKey:
		return maskEndpoint(value)
	case k.Name == parametersKey:
		return secretPair.ReplaceAllString(value, "${1}"+masked)
	}
	return value
}

// maskPair hides what is secret in one of the pairs of a key's value.
func (k Key) maskPair(name, text string) string {
	switch {
	case k.Name == endpointsKey:
		return maskEndpoint(text)
	case k.Name == parametersKey && secretPair.MatchString(name+"="):
		return masked
	}
	return text
}

// Redacted is the configuration with its secrets masked, for printing. It is no longer usable to connect.
func (c Config) Redacted() Config {
	for _, k := range allKeys() {
		field := reflect.ValueOf(&c).Elem().FieldByIndex(k.index)
		if field.Kind() == reflect.String && field.String() != "" {
			field.SetString(k.mask(field.String()))
		}
		if pairs, is := field.Interface().(map[string]string); is {
			shown := make(map[string]string, len(pairs))
			for name, text := range pairs {
				shown[name] = k.maskPair(name, text)
			}
			field.Set(reflect.ValueOf(shown))
		}
	}
	return c
}
