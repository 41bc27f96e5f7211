package config

import (
	"reflect"
	"strings"
)

const (
	endpointsKey  = "webhook.endpoints" // its values are URLs
	parametersKey = "kafka.sasl.oauth.parameters"
)

// mask hides what is secret in the value of a key, for messages.
func (k Key) mask(value string) string {
	switch last := lastWord(k.Name); {
	case k.Name == "webhook.url":
		return maskEndpoint(value)
	case k.Name == "nats.url":
		return maskNATS(value)
	case strings.HasSuffix(last, "url"):
		return MaskURL(value)
	case strings.HasSuffix(last, "password"), strings.HasSuffix(last, "secret"):
		return masked
	case k.Name == endpointsKey:
		return maskEndpoint(value)
	case k.Name == parametersKey:
		return maskPairs(value)
	}
	return value
}

// maskPair hides what is secret in one of the pairs of a key's value.
func (k Key) maskPair(name, text string) string {
	switch {
	case k.Name == endpointsKey:
		return maskEndpoint(text)
	case k.Name == parametersKey && namesSecret(name):
		return masked
	}
	return text
}

// Redacted returns a copy with the secrets masked, for printing. It cannot be used to connect.
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
