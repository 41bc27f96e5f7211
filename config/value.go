package config

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// raw is a value as a source gives it, before it has a type. Exactly one of the shapes is used; the environment
// and flags give text only, in which lists are split at commas.
type raw struct {
	where string // file:line, variable or flag
	shape shape
	text  string
	list  []string
	pairs map[string]string

	consumers map[string]map[string]raw
}

type shape uint8

const (
	isText shape = iota
	isList
	isPairs
	isConsumers
)

// shown is the value of a key for an error message. Secrets are masked before the text is quoted: what is escaped twice
// is hard to recognise.
func (r raw) shown(key Key) string {
	switch r.shape {
	case isList:
		return key.mask(formatList(r.list))
	case isPairs:
		return key.mask(formatPairs(r.pairs))
	case isConsumers:
		return formatNested(r.consumers)
	default:
		return strconv.Quote(key.mask(r.text))
	}
}

// Kind is the type of a key's values in a file.
type Kind uint8

// A list may also be written as one text with commas, and Pairs as name=value with commas.
const (
	Text Kind = iota
	Boolean
	Integer
	Number
	Span // a number with a unit of time
	Size // bytes, with or without a unit
	Texts
	Integers
	Spans
	Pairs
	Consumers // of RabbitMQ, by name; as one text it is YAML
)

func kindOf(t reflect.Type) Kind {
	switch reflect.Zero(t).Interface().(type) {
	case string:
		return Text
	case bool:
		return Boolean
	case int:
		return Integer
	case float64:
		return Number
	case Duration:
		return Span
	case ByteSize:
		return Size
	case []string:
		return Texts
	case []int:
		return Integers
	case []Duration:
		return Spans
	case map[string]string:
		return Pairs
	case map[string]RabbitMQConsumer:
		return Consumers
	}
	panic(fmt.Sprintf("config: a key has a type without a kind: %v", t))
}

// assign parses the value into the field of its key. An error means that the text does not have the key's type.
func (k Key) assign(cfg *Config, r raw) error {
	field := reflect.ValueOf(cfg).Elem().FieldByIndex(k.index)
	switch target := field.Addr().Interface().(type) {
	case *[]string:
		return setList(target, r, func(s string) (string, error) { return s, nil })
	case *[]Duration:
		return setList(target, r, ParseDuration)
	case *[]int:
		return setList(target, r, strconv.Atoi)
	case *map[string]string:
		return setPairs(target, r)
	case *map[string]RabbitMQConsumer:
		return setConsumers(target, r)
	}
	if r.shape != isText {
		return fmt.Errorf("want one value")
	}
	switch target := field.Addr().Interface().(type) {
	case *string:
		*target = r.text
		return nil
	case *bool:
		return set(target, r.text, parseBool)
	case *int:
		return set(target, r.text, strconv.Atoi)
	case *float64:
		return set(target, r.text, func(s string) (float64, error) { return strconv.ParseFloat(s, 64) })
	case *Duration:
		return set(target, r.text, ParseDuration)
	case *ByteSize:
		return set(target, r.text, ParseByteSize)
	default:
		panic(fmt.Sprintf("config: key %s has a type without a parser: %T", k.Name, target))
	}
}

func set[T any](target *T, text string, parse func(string) (T, error)) error {
	v, err := parse(text)
	if err == nil {
		*target = v
	}
	return err
}

// parseBool takes YAML's two words only: strconv's "t" and "1" would be a surprise in a file.
func parseBool(s string) (bool, error) {
	switch s {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, fmt.Errorf("parse %q: want true or false", s)
}

// setList splits every item at commas, so that a variable in the file may hold a whole list. No item can contain one.
func setList[T any](target *[]T, r raw, parse func(string) (T, error)) error {
	items := r.list
	switch r.shape {
	case isPairs, isConsumers:
		return fmt.Errorf("want a list")
	case isText:
		items = []string{r.text}
	}
	values := []T{}
	for _, item := range items {
		for part := range strings.SplitSeq(item, ",") {
			if part = strings.TrimSpace(part); part == "" {
				continue
			}
			v, err := parse(part)
			if err != nil {
				return err
			}
			values = append(values, v)
		}
	}
	*target = values
	return nil
}

func setPairs(target *map[string]string, r raw) error {
	if r.shape == isPairs {
		*target = r.pairs
		return nil
	}
	if r.shape == isList {
		return fmt.Errorf("want names with values")
	}
	pairs := map[string]string{}
	for part := range strings.SplitSeq(r.text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		name, value, found := strings.Cut(part, "=")
		if !found {
			return fmt.Errorf("parse %q: want name=value", part)
		}
		pairs[strings.TrimSpace(name)] = strings.TrimSpace(value)
	}
	*target = pairs
	return nil
}

// format is the value as it would be written in the file, without quotes.
func format(v reflect.Value) string {
	switch value := v.Interface().(type) {
	case []string:
		return formatList(value)
	case []Duration:
		return formatList(value)
	case []int:
		return formatList(value)
	case map[string]string:
		return formatPairs(value)
	case map[string]RabbitMQConsumer:
		return formatConsumers(value)
	default:
		return fmt.Sprint(value)
	}
}

func formatList[T any](items []T) string {
	text := make([]string, len(items))
	for i, item := range items {
		text[i] = fmt.Sprint(item)
	}
	return "[" + strings.Join(text, ", ") + "]"
}

func formatPairs(pairs map[string]string) string {
	text := make([]string, 0, len(pairs))
	for _, name := range slices.Sorted(maps.Keys(pairs)) {
		text = append(text, name+": "+pairs[name])
	}
	return "{" + strings.Join(text, ", ") + "}"
}
