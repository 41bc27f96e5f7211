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
	// password=… of a key=value string, and of a URL's query; values may be quoted with '.
	passwordPair = regexp.MustCompile(`(?i)((?:ssl)?password\s*=\s*)('(?:[^'\\]|\\.)*'?|[^\s&']+)`)
)

// secretPair is a parameter that holds a secret, where none belongs, as a file or a variable writes it.
var secretPair = regexp.MustCompile(`(?i)(\w*(?:secret|password|assertion|token)\w*\s*[:=]\s*)[^,}]*`)

// MaskURL replaces every password in a connection URL or key=value string, well-formed or not.
func MaskURL(s string) string {
	hidden := userinfo.ReplaceAllString(s, "$1:"+masked+"@")
	return passwordPair.ReplaceAllString(hidden, "${1}"+masked)
}

// endpointsKey is the key whose values are URLs.
const endpointsKey = "webhook.endpoints"

// query is that of a URL, up to the next one in a list.
var query = regexp.MustCompile(`\?[^\s,}]*`)

// maskEndpoint hides what follows the path, too: receivers' tokens are there.
func maskEndpoint(s string) string { return query.ReplaceAllString(MaskURL(s), "?"+masked) }

// mask hides what is secret in the value of a key, for messages.
func (k Key) mask(value string) string {
	switch last := lastWord(k.Name); {
	case k.Name == "webhook.url":
		return maskEndpoint(value)
	case strings.HasSuffix(last, "url"):
		return MaskURL(value)
	case strings.HasSuffix(last, "password"), strings.HasSuffix(last, "secret"):
		return masked
	case k.Name == endpointsKey:
		return maskEndpoint(value)
	case k.Name == "kafka.sasl.oauth.parameters":
		return secretPair.ReplaceAllString(value, "${1}"+masked)
	}
	return value
}

// Redacted is the configuration with its secrets masked, for printing. It is no longer usable to connect.
func (c Config) Redacted() Config {
	for _, k := range allKeys() {
		field := reflect.ValueOf(&c).Elem().FieldByIndex(k.index)
		if field.Kind() == reflect.String && field.String() != "" {
			field.SetString(k.mask(field.String()))
		}
		if urls, is := field.Interface().(map[string]string); is && k.Name == endpointsKey {
			shown := make(map[string]string, len(urls))
			for name, text := range urls {
				shown[name] = maskEndpoint(text)
			}
			field.Set(reflect.ValueOf(shown))
		}
	}
	return c
}
