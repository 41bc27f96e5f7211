package config

import "reflect"

// Shown is one key as a person may see it.
type Shown struct {
	Key       string `json:"key"`
	Value     string `json:"value"` // as it would be written, secrets masked
	Help      string `json:"help"`
	IsDefault bool   `json:"default"`
}

// Shown lists the available keys with their values and without secrets.
func (c Config) Shown() []Shown {
	redacted := reflect.ValueOf(c.Redacted())
	var shown []Shown
	for _, k := range availableKeys() {
		value := format(redacted.FieldByIndex(k.index))
		shown = append(shown, Shown{k.Name, value, k.Help, value == k.Default})
	}
	return shown
}
