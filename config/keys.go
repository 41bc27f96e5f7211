package config

import (
	"reflect"
	"slices"
	"strings"
	"sync"
)

// EnvPrefix begins the environment variable of every key.
const EnvPrefix = "CDC_RELAY_"

// notYet lists the keys, or sections of keys, that this version does not act on. They answer as unknown keys: a key
// that is accepted and ignored would be a lie. The fields, defaults and rules behind them are ready, so that making one
// available is taking its line out. Values that are not available yet are in [rules].
var notYet = []string{}

// Key describes one key of the configuration.
type Key struct {
	Name      string   // postgres.url
	Env       string   // CDC_RELAY_POSTGRES_URL
	Flag      string   // postgres-url, without the dashes
	Help      string   // one sentence
	Default   string   // as it would be written; empty for none
	Allowed   string   // what is allowed, for people
	Values    []string // all that are allowed; nil: too many for a list
	Kind      Kind
	Available bool // false: an unknown key in this version

	index []int // of the field, for reflect
}

// Keys lists every key in the order of [Config], also those that are not available in this version.
func Keys() []Key { return slices.Clone(allKeys()) }

// allKeys is computed once: the walk is the same each time.
var allKeys = sync.OnceValue(listKeys)

func listKeys() []Key {
	defaults := Default()
	var keys []Key
	walk(reflect.TypeFor[Config](), "", nil, func(k Key) {
		k.Env = envName(k.Name)
		k.Flag = strings.NewReplacer(".", "-", "_", "-").Replace(k.Name)
		k.Default = format(reflect.ValueOf(defaults).FieldByIndex(k.index))
		k.Allowed, k.Values = rules[k.Name].allowed, rules[k.Name].values
		k.Available = !slices.ContainsFunc(notYet, func(p string) bool { return within(k.Name, p) })
		keys = append(keys, k)
	})
	return keys
}

func walk(t reflect.Type, prefix string, index []int, leaf func(Key)) {
	for i := range t.NumField() {
		field := t.Field(i)
		name := prefix + field.Tag.Get("key")
		at := append(slices.Clone(index), i)
		if field.Type.Kind() == reflect.Struct {
			walk(field.Type, name+".", at, leaf)
			continue
		}
		leaf(Key{Name: name, Help: field.Tag.Get("help"), Kind: kindOf(field.Type), index: at})
	}
}

func envName(key string) string {
	return EnvPrefix + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

// within reports whether name is the key or section p, or inside the section p.
func within(name, p string) bool {
	return name == p || strings.HasPrefix(name, p+".")
}

func findKey(name string) (Key, bool) {
	keys := allKeys()
	i := slices.IndexFunc(keys, func(k Key) bool { return k.Name == name })
	if i < 0 {
		return Key{}, false
	}
	return keys[i], true
}

// isSection reports whether the name is a section, such as kafka or kafka.tls.
func isSection(name string) bool {
	return slices.ContainsFunc(allKeys(), func(k Key) bool { return strings.HasPrefix(k.Name, name+".") })
}

// sections lists the sections that hold at least one available key.
func sections() []string {
	var found []string
	for _, k := range availableKeys() {
		for i, r := range k.Name {
			if r == '.' && !slices.Contains(found, k.Name[:i]) {
				found = append(found, k.Name[:i])
			}
		}
	}
	return found
}

func availableKeys() []Key {
	return slices.DeleteFunc(Keys(), func(k Key) bool { return !k.Available })
}

func lastWord(name string) string { return name[strings.LastIndexByte(name, '.')+1:] }

// Shown is one key as a person may see it.
type Shown struct {
	Key       string `json:"key"`
	Value     string `json:"value"` // as it would be written, secrets masked
	Help      string `json:"help"`
	IsDefault bool   `json:"default"`
}

// Shown lists the available keys with their values, secrets masked.
func (c Config) Shown() []Shown {
	redacted := reflect.ValueOf(c.Redacted())
	var shown []Shown
	for _, k := range availableKeys() {
		value := format(redacted.FieldByIndex(k.index))
		shown = append(shown, Shown{k.Name, value, k.Help, value == k.Default})
	}
	return shown
}
