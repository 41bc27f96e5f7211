package config

import (
	"reflect"
	"slices"
)

// Validate returns every problem of the configuration as [Problems], or nil. It requires postgres.url, and
// kafka.brokers if the sink is Kafka. It does not connect to anything.
func (c Config) Validate() error {
	var problems Problems
	defaults := reflect.ValueOf(Default())
	broken := map[string]bool{}
	for _, key := range availableKeys() {
		value := reflect.ValueOf(c).FieldByIndex(key.index)
		if value.IsZero() || value.Kind() == reflect.Slice && value.Len() == 0 {
			if isRequired(&c, key, []string{"postgres.url", "kafka.brokers"}) {
				problems = append(problems, Problem{Key: key.Name, What: "not set, and required", Allowed: key.Allowed})
				continue
			}
		}
		if reflect.DeepEqual(value.Interface(), defaults.FieldByIndex(key.index).Interface()) {
			continue
		}
		if complaint := rules[key.Name].check(value.Interface()); complaint != "" {
			broken[key.Name] = true
			found := "found " + key.mask(format(value))
			if complaint != notAllowed {
				found += ": " + key.mask(complaint)
			}
			problems = append(problems, Problem{Key: key.Name, What: found, Allowed: key.Allowed})
		}
	}
	for _, b := range relations {
		if slices.ContainsFunc(b.keys, func(k string) bool { return broken[k] }) {
			continue
		}
		if complaint := b.check(&c); complaint != "" {
			problems = append(problems, Problem{Key: b.keys[0], What: "found " + complaint, Allowed: b.allowed})
		}
	}
	if len(problems) == 0 {
		return nil
	}
	return problems
}
