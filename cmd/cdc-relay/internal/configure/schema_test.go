package configure

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/cdc-relay/cdc-relay/config"
)

// compiled is the schema as editors would have it.
func compiled(t *testing.T) *jsonschema.Schema {
	t.Helper()
	text, err := json.Marshal(schema())
	if err != nil {
		t.Fatal(err)
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("cdc-relay.schema.json", document); err != nil {
		t.Fatal(err)
	}
	s, err := compiler.Compile("cdc-relay.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// takes returns the schema's error for a YAML text.
func takes(t *testing.T, s *jsonschema.Schema, text string) error {
	t.Helper()
	converted, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(converted))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return s.Validate(value)
}

// forms are values as people write them, right and wrong.
var forms = []string{
	`true`, `"true"`, `yes`, `0`, `1`, `-1`, `7`, `+5`, `"12"`, `0.5`, `1.0`, `100000`, `0s`, `10s`, `"10s"`,
	`1h30m`, `1.5s`, `.5s`, `250ms`, `10`, `10 s`, `1MiB`, `"1 MiB"`, `64KiB`, `4096`, `1GB`, `1MB5`, `a`,
	`"a b"`, `a,b`, `'a:1, b:2'`, `[a]`, `[a, b]`, `["x:1"]`, `[]`, `[1m, 5m, 15m]`, `"1m,5m"`, `[1, 2]`, `1,2`,
	`{a: b}`, `{}`, `a=b`, `null`, `${SOME}`, `"${SOME}"`, `["${SOME}"]`, `murmur2`, `/etc/x`,
	`[/bin/token, --now]`, `127.0.0.1:80`, `{column}`, `'{id}'`, `"x-{id}"`, `host:9092`, `postgres://u@h/d`,
	`http://h:1/x`,
}

// nested is a file that sets one key.
func nested(name, value string) string {
	var b strings.Builder
	words := strings.Split(name, ".")
	for depth, word := range words {
		fmt.Fprintf(&b, "%s%s:", strings.Repeat("  ", depth), word)
		if depth < len(words)-1 {
			b.WriteString("\n")
		}
	}
	return b.String() + " " + value + "\n"
}

// Breaks it catches: an editor that marks what the relay takes, or that takes a word where only others are allowed.
// Seen to fail with durations that must be texts (0 is one), and with the choices left out.
func TestTheSchemaTakesWhatTheRelayTakes(t *testing.T) {
	s := compiled(t)
	both, neither := 0, 0
	for _, key := range config.Keys() {
		values := slices.Concat(forms, key.Values)
		if key.Default != "" && key.Kind != config.Text {
			values = append(values, key.Default)
		}
		for _, value := range values {
			text := nested(key.Name, value)
			_, err := config.Load(config.Input{File: "relay.yaml", Text: []byte(text), Environ: []string{"SOME=10s"}})
			loads := err == nil
			// What one key has against another one is not about its form.
			if problems, is := err.(config.Problems); is {
				loads = !slices.ContainsFunc(problems, func(p config.Problem) bool { return p.Key == key.Name })
			}
			refusal := takes(t, s, text)
			wrong := key.Kind == config.Boolean || key.Values != nil && !slices.Contains(key.Values, value)
			switch {
			case loads && refusal != nil:
				t.Errorf("the relay takes this, the schema says %v:\n%s", refusal, text)
			case !loads && refusal == nil && wrong && !strings.Contains(value, "${"):
				t.Errorf("the schema takes this, the relay says %v:\n%s", err, text)
			case loads:
				both++
			case refusal != nil:
				neither++
			}
		}
	}
	t.Logf("taken by both: %d, by neither: %d", both, neither)
	if both < 1000 || neither < 1000 {
		t.Errorf("taken by both: %d, by neither: %d; the values show too little", both, neither)
	}
	for _, file := range []string{"outbox:\n  tabel: x\n", "nosuch: 1\n", "kafka: 5\n", "- a\n"} {
		if takes(t, s, file) == nil {
			t.Errorf("the schema takes this:\n%s", file)
		}
	}
}

// The files that come with the program. Breaks it catches: a schema that refuses what is in use. Seen to fail with
// sections that have no key "url".
func TestTheSchemaTakesTheFilesThatAreShipped(t *testing.T) {
	s, root := compiled(t), "../../../.."
	for _, name := range []string{
		"config/testdata/defaults.yaml", "deploy/compose/relay.yaml", "deploy/compose/nats.yaml",
		"deploy/compose/rabbitmq.yaml", "deploy/compose/rabbitmq-stream.yaml", "deploy/compose/redis.yaml",
		"deploy/compose/bullmq.yaml", "deploy/compose/webhook.yaml", "deploy/compose/sqs.yaml",
	} {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := takes(t, s, string(text)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
