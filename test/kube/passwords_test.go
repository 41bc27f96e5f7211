package kube

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/cdc-relay/cdc-relay/config"
)

// urlKeys are the keys whose values are URLs, or hold some: those that are called so, and those that say so to people.
func urlKeys(t *testing.T) []config.Key {
	t.Helper()
	keys := slices.DeleteFunc(config.Keys(), func(k config.Key) bool {
		called := k.Name[strings.LastIndexByte(k.Name, '.')+1:]
		said := k.Help + k.Allowed + k.Default
		return !strings.Contains(called, "url") && !strings.Contains(called, "endpoint") &&
			!strings.Contains(said, "URL") && !strings.Contains(said, "://")
	})
	if len(keys) < 12 {
		t.Fatalf("keys with URLs: got %v, want all", keys)
	}
	return keys
}

// with are values that have one under a key of the configuration, and what else is required.
func with(t *testing.T, key string, value any) map[string]any {
	t.Helper()
	var values map[string]any
	if err := yaml.Unmarshal([]byte(required), &values); err != nil {
		t.Fatal(err)
	}
	at, parts := values["config"].(map[string]any), strings.Split(key, ".")
	for _, section := range parts[:len(parts)-1] {
		next, is := at[section].(map[string]any)
		if !is {
			next = map[string]any{}
			at[section] = next
		}
		at = next
	}
	at[parts[len(parts)-1]] = value
	return values
}

// forms are the ways in which a file may give the text to a key of the kind.
func forms(kind config.Kind, text string) []any {
	switch kind {
	case config.Texts:
		return []any{text, []any{text}}
	case config.Pairs:
		return []any{text, map[string]any{"orders": text}}
	}
	return []any{text}
}

// Break it catches: a password for all who may read ConfigMaps, because a key that holds a URL has no guard. Seen to
// fail with the guard of each of registry.url, webhook.endpoints and rabbitmq.stream_url taken out, and with the
// password's pattern of before, which took what begins with a dollar, has a slash in it, or stands behind a user with
// an @ in his name; and with a token of NATS let through.
func TestNoURLTakesAPassword(t *testing.T) {
	t.Parallel()
	c := loadChart(t)
	for _, k := range urlKeys(t) {
		for text, refused := range map[string]bool{
			"https://user:secret@host/path": true, "nats://a:4222,nats://user:secret@b:4222": true,
			"https://user:$ecret@host/path": true, "https://user:${PART}secret@host/path": true,
			"https://user:se/cret@host/path": true, "postgres://host/shop?password=secret": true,
			"host=db password=$ecret": true, "postgres://user@server:secret@host/shop": true,
			"nats://user@a:4222": k.Name == "nats.url", "nats://a:4222,nats://user@b:4222": k.Name == "nats.url",

			"https://user:${PASSWORD}@host/path": false, "https://user@host:8443/path": false, "https://h:8443/p@q": false,
			"nats://${TOKEN}@a:4222": false, "redis://user@a:6379,redis://b:6379": false,
			"postgres://user@server:${PASSWORD}@host/shop": false, "postgres://u@a:5432,b:5432/shop": false, "https://[::1]:8443/a@b": false,
		} {
			for _, value := range forms(k.Kind, text) {
				_, err := render(c, with(t, k.Name, value), "shop")
				if got := err != nil; got != refused {
					t.Errorf("%s: %v: got refused %v (%v), want %v", k.Name, value, got, err, refused)
				}
			}
		}
	}
}

// Break it catches: a rule for a key that the relay does not have, which guards nothing. Seen to fail with
// rabbitmq_stream.url, which there was for rabbitmq.stream_url.
func TestChartHasRulesForRealKeysOnly(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(chartFolder + "/values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	type node struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	var schema struct {
		AllOf       []node `json:"allOf"`
		Definitions struct {
			Relay struct {
				AllOf []json.RawMessage `json:"allOf"`
			} `json:"relay"`
		} `json:"definitions"`
	}
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, k := range config.Keys() {
		known[k.Name] = true
	}
	seen := 0
	var walk func(name string, rule json.RawMessage)
	walk = func(name string, rule json.RawMessage) {
		var n node
		if err := json.Unmarshal(rule, &n); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for inner, rule := range n.Properties {
			walk(strings.TrimPrefix(name+"."+inner, "."), rule)
		}
		if len(n.Properties) > 0 {
			return
		}
		if seen++; !known[name] {
			t.Errorf("config.%s has a rule, and is no key", name)
		}
	}
	for _, rules := range schema.AllOf {
		if rule, has := rules.Properties["config"]; has {
			walk("", rule)
		}
	}
	walk("", schema.Definitions.Relay.AllOf[0])
	if seen < 14 {
		t.Errorf("rules: got %d, want those of all URLs, and more", seen)
	}
}
