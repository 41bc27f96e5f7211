package config

import (
	"errors"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files")

func problemsOf(t *testing.T, in Input) Problems {
	t.Helper()
	_, err := Load(in)
	var problems Problems
	if err != nil && !errors.As(err, &problems) {
		t.Fatalf("Load: got error of type %T, want Problems", err)
	}
	return problems
}

// Seen to fail with the environment above the flags.
func TestFlagsBeatEnvironmentBeatsFileBeatsDefault(t *testing.T) {
	in := Input{File: "relay.yaml", Text: []byte("service: from-file\npostgres: {slot: from_file, schema: from_file}\n"),
		Environ: []string{"CDC_RELAY_POSTGRES_SLOT=from_env", "CDC_RELAY_POSTGRES_SCHEMA=from_env", "HOME=/"},
		Flags:   []Setting{{"--postgres-schema", "postgres.schema", "first"}, {"--set", "postgres.schema", "from_flag"}}}
	cfg, err := Load(in)
	if err != nil {
		t.Fatal(err)
	}
	got := []string{cfg.Service, cfg.Postgres.Slot, cfg.Postgres.Schema, cfg.Postgres.Publication}
	want := []string{"from-file", "from_env", "from_flag", "cdc_relay"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("service, slot, schema, publication (-want +got):\n%s", diff)
	}
}

// Users copy the file with every key at its default. Break it catches: a default that changed, or is written in
// a form that cannot be read.
func TestDefaultsWrittenAsAFileAreTheDefaults(t *testing.T) {
	text, err := os.ReadFile("testdata/defaults.yaml")
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := Load(Input{File: "defaults.yaml", Text: text})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Default(), cfg, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
	for _, k := range availableKeys() {
		if !strings.Contains(string(text), lastWord(k.Name)+":") {
			t.Errorf("the file lacks %s", k.Name)
		}
	}
}

// A full file in the shape of the documentation, with every YAML form that people use for these values. Seen to fail
// with ${NAME} left as it stands, and $$.
func TestFileForms(t *testing.T) {
	text := "\uFEFF# comment with ${UNDEFINED}\r\n" + `
postgres:
  url: ${PG_URL}
  password_file: '/run/secrets/${NAME}'
  pool_size: "8"
outbox:
  mark_set: >-
    processed = true,
    processed_at = now()
  published_when: "price > $$5"
message:
  headers: {id: x-event-id, tenant: x-tenant}
kafka:
  brokers: [${BROKERS}, "c:3"]
limits:
log: {level: debug, format: console}
`
	cfg, err := Load(Input{File: "f", Text: []byte(text),
		Environ: []string{`PG_URL=host=h password='p"w#$$: {x}'`, "NAME=pw", "BROKERS=a:1, b:2"}})
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	want.Postgres.URL = `host=h password='p"w#$$: {x}'`
	want.Postgres.PasswordFile = "/run/secrets/pw"
	want.Postgres.PoolSize = 8
	want.Outbox.MarkSet = "processed = true, processed_at = now()"
	want.Outbox.PublishedWhen = "price > $5"
	want.Message.Headers = map[string]string{"id": "x-event-id", "tenant": "x-tenant"}
	want.Kafka.Brokers = []string{"a:1", "b:2", "c:3"}
	want.Log = Log{Level: "debug", Format: "console"}
	if diff := cmp.Diff(want, cfg); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
}

// Breaks it catches: stopping at the first problem, a wrong line, a leaked password, a changed wording.
func TestAllProblemsAtOnce(t *testing.T) {
	text, err := os.ReadFile("testdata/problems.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, loadErr := Load(Input{
		File: "problems.yaml", Text: text,
		Environ: []string{
			"BROKERS=a:1,b", "SECRET_URL=mysql://app:hunter2@db/app", "CDC_RELAY_POSTGRES_SLOTT=x", "CDC_RELAY_HTTP_LISTEN=9464",
			"CDC_RELAY_LIMITS_PARKED_EVENTS=1", "CDC_RELAY_CONFIG=problems.yaml",
			"CDC_RELAY_POSTGRES_REPLICATION_URL=ftp://a:hunter2@b",
		},
		OwnEnv:   []string{"CDC_RELAY_CONFIG"},
		Flags:    []Setting{{"--set", "log.levle", "debug"}, {"--shutdown-grace", "shutdown_grace", "-1s"}},
		Required: []string{"postgres.url", "kafka.brokers"},
	})
	if loadErr == nil {
		t.Fatal("got no error, want many")
	}
	got := loadErr.Error() + "\n"
	if strings.Contains(got, "hunter2") {
		t.Errorf("the error shows a password:\n%s", got)
	}
	const golden = "testdata/problems.golden"
	if *rewrite {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("problems (-want +got), go test -rewrite accepts them:\n%s", diff)
	}
}

// Seen to fail with a value that cannot be read, or a file that cannot, counted as not set.
func TestRequiredKeys(t *testing.T) {
	required := []string{"postgres.url", "kafka.brokers"}
	for name, c := range map[string]struct {
		in   Input
		want []string // keys with problems
	}{
		"nothing set":      {Input{}, required},
		"set to nothing":   {Input{Environ: []string{"CDC_RELAY_POSTGRES_URL=", "CDC_RELAY_KAFKA_BROKERS= ,"}}, required},
		"one is set":       {Input{Environ: []string{"CDC_RELAY_POSTGRES_URL=postgres://h/d"}}, required[1:]},
		"file is not YAML": {Input{File: "f", Text: []byte("a: [")}, []string{""}},
		"file is not text": {Input{File: "f", Text: []byte("a: \xff")}, []string{""}},
		"set, but unreadable": {Input{File: "f", Text: []byte("postgres: {url: '${NOT_DEFINED}'}\nkafka: {brokers: {a: 1}}")},
			required},
		"set in the file":   {Input{File: "f", Text: []byte("postgres: {url: 'host=h'}\nkafka: {brokers: 'h:1'}")}, nil},
		"present but wrong": {Input{Environ: []string{"CDC_RELAY_POSTGRES_URL=h", "CDC_RELAY_KAFKA_BROKERS=h"}}, required},
	} {
		c.in.Required = required
		var got []string
		for _, p := range problemsOf(t, c.in) {
			got = append(got, p.Key)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: keys with problems (-want +got):\n%s", name, diff)
		}
	}
}

// Seen to fail with a second document taken, a key set twice taken, and a variable that is not set left empty.
func TestFileShapesThatAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"a: [b\nc: d":                             "f:2: not valid YAML: ",
		"- a\n- b":                                "f:1: found a list; allowed: keys with values",
		"text":                                    "f:1: found a single value; allowed: keys with values",
		"log: console":                            "log (f:1): found a single value; allowed: keys with values",
		"\nservice:":                              "service (f:2): found no value; allowed: ",
		"service: {a: b}":                         `service (f:1): found {a: b}; allowed: `,
		"service: [a]":                            `service (f:1): found [a]; allowed: `,
		"kafka: {brokers: {a: b}}":                `kafka.brokers (f:1): found {a: b}; allowed: `,
		"kafka:\n  brokers:\n  - a:\n    - b":     `kafka.brokers (f:3): found keys with values; allowed: `,
		"service: &x a":                           "service (f:1): found an anchor or alias",
		"service: !!str a":                        "service (f:1): found a tag",
		"service: a\n---\nservice: b":             "f:3: a second YAML document; allowed: one document",
		"service: a\non_halt: exit\nservice: b":   "service (f:3): set twice, first in line 1",
		"log: {level: info}\nlog: {format: json}": "log (f:2): set twice, first in line 1",
		"message: {headers: {id: a, id: b}}":      `message.headers (f:1): "id" is set twice`,
		"service: ${NOT_DEFINED}": "service (f:1): the environment variable NOT_DEFINED in ${NOT_DEFINED} " +
			"is not set",
		"service: ${A:-b}":                        "service (f:1): found ${A:-b}; allowed: ${NAME}",
		"service: ${}":                            "service (f:1): found ${}; allowed: ${NAME}",
		"kafkaa: {brokers: [a:1]}":                "kafkaa (f:1): unknown key; the nearest known key is kafka",
		"Postgres: {url: x}":                      "Postgres (f:1): unknown key; the nearest known key is postgres",
		"postgres:\n  url: \"postgres://u:pw@h\n": "f:2: not valid YAML: ",
	} {
		problems := problemsOf(t, Input{File: "f", Text: []byte(text)})
		if len(problems) != 1 || !strings.HasPrefix(problems[0].String(), want) {
			t.Errorf("file %q:\n got %v\nwant one problem that begins with %s", text, problems, want)
		}
		if strings.Contains(problems.Error(), "pw") {
			t.Errorf("file %q: the error shows a password: %v", text, problems)
		}
	}
}

// Seen to fail with a document without content looked into.
func TestEmptyFilesSetNothing(t *testing.T) {
	for _, text := range []string{"", "\n", "# only a comment\n", "---\n", "postgres:\nkafka: {}\n", "{}"} {
		cfg, err := Load(Input{File: "f", Text: []byte(text)})
		if err != nil {
			t.Errorf("file %q: %v", text, err)
		} else if diff := cmp.Diff(Default(), cfg); diff != "" {
			t.Errorf("file %q (-want +got):\n%s", text, diff)
		}
	}
}

// Breaks it catches: a relay that cannot start in a pod beside a Service that is called cdc-relay.
func TestKubernetesServiceLinksAreNotKeys(t *testing.T) {
	links := []string{
		"CDC_RELAY_SERVICE_HOST=10.0.0.1", "CDC_RELAY_SERVICE_PORT=9464", "CDC_RELAY_SERVICE_PORT_HTTP=9464",
		"CDC_RELAY_PORT=tcp://10.0.0.1:9464", "CDC_RELAY_PORT_9464_TCP=tcp://10.0.0.1:9464",
		"CDC_RELAY_PORT_9464_TCP_PROTO=tcp",
		"CDC_RELAY_PORT_9464_TCP_PORT=9464", "CDC_RELAY_PORT_9464_TCP_ADDR=10.0.0.1",
		"CDC_RELAY_METRICS_SERVICE_HOST=10.0.0.2",
		"CDC_RELAY_METRICS_PORT_9464_TCP_ADDR=10.0.0.2",
	}
	if problems := problemsOf(t, Input{Environ: links}); len(problems) > 0 {
		t.Errorf("got %v, want the links ignored", problems)
	}
	if problems := problemsOf(t, Input{Environ: []string{"CDC_RELAY_PORT_9464=x",
		"CDC_RELAY_HTTP_PORTS=x"}}); len(problems) != 2 {
		t.Errorf("got %v, want both variables unknown", problems)
	}
}

// Who compiles schemas has the last word on their directory. Seen to fail with the function not asked.
func TestSchemasThatCannotBeCompiledAreProblems(t *testing.T) {
	in := Input{Compiles: func(directory string) error { return errors.New("a.json in " + directory + " is none") },
		Flags: []Setting{{"--m", "message.schemas", "/schemas"}, {"--t", "log.level", "loud"}}}
	problems := problemsOf(t, in)
	if len(problems) != 2 || problems[1].Key != "message.schemas" && problems[0].Key != "message.schemas" ||
		!strings.Contains(problems.Error(), "a.json in /schemas is none") {
		t.Errorf("got %v, want a problem of the schemas beside the other one", problems)
	}
	in.Compiles = nil
	if problems := problemsOf(t, in); len(problems) != 1 {
		t.Errorf("a command that needs none: got %v, want the other problem alone", problems)
	}
}

// The driver has the last word on the URLs of connections, and on nothing else. Seen to fail with its complaint not
// masked, and with it asked about a URL that breaks the key's own rule.
func TestTheDriverIsAskedAboutConnections(t *testing.T) {
	var asked []string
	in := Input{Connects: func(url string) error {
		asked = append(asked, url)
		return errors.New("no good: " + url)
	}}
	in.Flags = []Setting{{"--u", "postgres.url", "postgres://u:hidden@h/d"},
		{"--r", "postgres.replication_url", "nonsense"}, {"--t", "tracing.endpoint", "http://c:4318"}}
	problems := problemsOf(t, in)
	if len(asked) != 1 || asked[0] != "postgres://u:hidden@h/d" {
		t.Errorf("asked about %q, want postgres.url alone", asked)
	}
	if len(problems) != 2 || problems[0].Where != "--u" || !strings.Contains(problems[0].What, "no good") ||
		strings.Contains(problems.Error(), "hidden") || problems[1].Where != "--r" {
		t.Errorf("got %v, want a problem of each URL, masked", problems)
	}
	in.Flags = nil
	if problems := problemsOf(t, in); len(problems) > 0 {
		t.Errorf("nothing set: got %v, want no problem", problems)
	}
}

// Breaks it catches: a section that is not the file's to set taken from it, or refused where it is.
func TestForeignSectionsAreRefusedInAFile(t *testing.T) {
	in := Input{File: "a.yaml", Text: []byte("service: a\nhttp:\n  listen: 127.0.0.1:1\n"),
		Flags: []Setting{{Flag: "--http-listen", Key: "http.listen", Value: "127.0.0.1:2"}}}
	cfg, err := Load(in)
	if err != nil || cfg.HTTP.Listen != "127.0.0.1:2" {
		t.Errorf("got %v, http.listen = %s; want no error and the flag's", err, cfg.HTTP.Listen)
	}
	in.Foreign = []string{"http"}
	if _, err = Load(in); err == nil || !strings.Contains(err.Error(), "http (a.yaml:2): set for one relay of several") {
		t.Errorf("got %v, want that line 2 sets http", err)
	}
}

// Breaks it catches: addresses in YAML's flow style that are taken for keys and values; those that are keys and values
// taken for addresses.
func TestFlowStyleIsRead(t *testing.T) {
	for text, want := range map[string][]string{
		"kafka: {brokers: [localhost:9092]}":               {"localhost:9092"},
		"kafka: {brokers: [a:9092, b:9093], client_id: x}": {"a:9092", "b:9093"},
		`{kafka: {brokers: ["a:9092", 10.0.0.1:9092]}}`:    {"a:9092", "10.0.0.1:9092"},
		"kafka: {brokers: a:9092}":                         {"a:9092"},
		"kafka:\n  brokers: [a:9092]":                      {"a:9092"},
		"kafka: {brokers: [{a: 9092}]}":                    nil,
		"kafka: {brokers: [a: 9092]}":                      nil,
	} {
		c, err := Load(Input{File: "f.yaml", Text: []byte(text)})
		if (err == nil) != (want != nil) || err == nil && !slices.Equal(c.Kafka.Brokers, want) {
			t.Errorf("%s: got %q, %v; want %q", text, c.Kafka.Brokers, err, want)
		}
	}
}
