package configure

import (
	"strings"

	"github.com/cdc-relay/cdc-relay/config"
)

// object is a JSON object.
type object = map[string]any

// reference lets every value hold a variable.
const reference = `\$\{`

// The texts that values of a kind may have, as the file has them; config.ParseDuration and its like decide.
const (
	span    = `([+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+|[+-]?0`
	size    = `[+-]?[0-9]+ *(GiB|MiB|KiB|GB|MB|kB|KB|B)?`
	integer = `[+-]?[0-9]+`
)

// schema describes the configuration file. It takes all that is allowed, and does not know each bound: those are told
// in the description, and at the start.
func schema() object {
	root := section()
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = "Configuration of cdc-relay"
	root["type"] = "object"
	for _, key := range config.Keys() {
		if !key.Available {
			continue
		}
		at := root
		words := strings.Split(key.Name, ".")
		for _, word := range words[:len(words)-1] {
			properties := at["properties"].(object)
			if properties[word] == nil {
				properties[word] = section()
			}
			at = properties[word].(object)
		}
		at["properties"].(object)[words[len(words)-1]] = value(key)
	}
	return root
}

func section() object {
	// A section in which nothing is set may be empty.
	return object{"type": []string{"object", "null"}, "properties": object{}, "additionalProperties": false}
}

func value(key config.Key) object {
	v := form(key)
	v["description"] = key.Help + "\nAllowed: " + key.Allowed + "."
	if key.Default != "" {
		v["description"] = v["description"].(string) + "\nDefault: " + key.Default
	}
	return v
}

// form describes the values of the key. A scalar is read as it is written, with quotes or without.
func form(key config.Key) object {
	list := func(pattern string) object {
		item := object{"type": scalar}
		if pattern != "" {
			item["pattern"] = "^ *(" + pattern + "|) *(, *(" + pattern + "|) *)*$|" + reference
		}
		return object{"anyOf": []object{item, {"type": "array", "items": item}}}
	}
	switch key.Kind {
	case config.Boolean:
		return either(object{"enum": []any{true, false, "true", "false"}}, reference)
	case config.Integer:
		return either(object{"type": "integer"}, "^("+integer+")$|"+reference)
	case config.Number:
		return object{"type": []string{"number", "string"}}
	case config.Span:
		return either(object{"const": 0}, "^("+span+")$|"+reference)
	case config.Size:
		return either(object{"type": "integer"}, "^("+size+")$|"+reference)
	case config.Texts:
		return list("")
	case config.Integers:
		return list(integer)
	case config.Spans:
		return list(span)
	case config.Pairs:
		return object{"type": append([]string{"object"}, scalar...), "additionalProperties": object{"type": scalar}}
	case config.Consumers:
		one := object{"type": []string{"object", "null"}, "additionalProperties": false,
			"properties": object{"bind": list(""), "retry": list(span), "exchanges": list(""),
				"single_active": object{"enum": []any{true, false, "true", "false"}}}}
		return either(object{"type": "object", "additionalProperties": one}, `^\s*(\{[^$]*\}\s*)?$|`+reference)
	}
	if key.Values == nil {
		return object{"type": scalar}
	}
	return either(object{"enum": key.Values}, reference)
}

// scalar are the types that YAML may take a word for.
var scalar = []string{"string", "number", "boolean"}

// either allows what the form does, and texts with the pattern.
func either(form object, pattern string) object {
	return object{"anyOf": []object{form, {"type": "string", "pattern": pattern}}}
}
