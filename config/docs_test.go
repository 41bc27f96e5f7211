package config

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Breaks it catches: a key, default, rule or sentence that changed and whose documentation did not.
func TestDocumentationListsEveryKey(t *testing.T) {
	const path, begin, end = "../docs/configuration.md", "<!-- keys: written by go test ./config -rewrite -->\n",
		"<!-- end of keys -->"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), begin)
	have, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatalf("%s has no lines %q and %q", path, strings.TrimSpace(begin), end)
	}
	want := keyTable()
	if *rewrite {
		if err := os.WriteFile(path, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		have = want
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("the keys in %s (-want +got), go test ./config -rewrite writes them:\n%s", path, diff)
	}
}

// keyTable has a row for each key, and one for keys that differ only in their section.
func keyTable() string {
	type row struct{ names, rest string }
	var rows []row
	cell := strings.NewReplacer("|", `\|`, "<", "&lt;")
	for _, k := range availableKeys() {
		value := ""
		if k.Default != "" {
			value = "`" + k.Default + "`"
		}
		name := "`" + k.Name + "`"
		meaning := shorter.Replace(k.Help)
		if text := allowed(k); text != "" {
			meaning += " (" + text + ")"
		}
		rest := value + " | " + cell.Replace(meaning)
		same := func(r row) bool { return r.rest == rest && !strings.Contains(k.Name, "password") }
		if i := slices.IndexFunc(rows, same); i >= 0 {
			rows[i].names += ", " + name
		} else {
			rows = append(rows, row{name, rest})
		}
	}
	var b strings.Builder
	b.WriteString("| key | default | meaning (allowed) |\n|---|---|---|\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s | %s |\n", r.names, r.rest)
	}
	return b.String()
}

// allowed is what the table says about a key's values: nothing where the page above it, the default or the meaning
// has it.
func allowed(k Key) string {
	text := shorter.Replace(k.Allowed)
	if k.Default == "" || k.Default == "[]" {
		text = strings.TrimSuffix(text, ", or empty")
	}
	plain := func(kind string) bool { return strings.HasPrefix(text, kind) }
	if slices.Contains(plainKinds, text) || slices.ContainsFunc(longKinds, plain) {
		return ""
	}
	choices := strings.Split(text, ", ")
	missing := func(c string) bool { return strings.Contains(c, " ") || !strings.Contains(k.Help, c) }
	if text == "true, false" || len(choices) > 1 && !slices.ContainsFunc(choices, missing) {
		return ""
	}
	return text
}

// plainKinds are the formats that the page describes above the table, once for all keys, those that a meaning has, and
// bounds that no one meets.
var plainKinds = []string{
	"a file", "a directory", "a program", "a name", "1 to 249 characters", "1 to 249 characters, or empty",
	"schema.table, each a name", "a list of host:port", "a SET list such as processed = true, processed_at = now()",
	"postgres://user@host:port/database?options, or host=… user=… dbname=…", "an SQL condition such as processed",
	"https://host/path or http://host/path", "https://host or http://host, without a login",
	"host:port, such as 127.0.0.1:9464 or :9464 for all addresses", "latest, or 1",
	"column names separated by commas, in double quotes where they have a comma or a space, each optionally followed " +
		"by asc or desc",
	"text with columns of the row in braces, such as {aggregate_id}; empty for messages without a key, and without order",
	"a list of numbers with a unit, such as [1m, 5m, 15m]", "an AWS region such as eu-west-1",
	"a region such as eu-west-1", "names with values, such as {audience: kafka}",
	"topic: URL, such as {orders: https://host/path}",
	"names of letters with values in ASCII, such as {logicalCluster: lkc-1}", "text with columns of the row in braces",
	"nats://host:port, also tls, ws, wss", "redis://host:port, also rediss", "amqp://host:port, also amqps",
	"rabbitmq-stream://host:port, also rabbitmq-stream+tls", "http://host:port, also https", "murmur2",
	"secrets that begin with whsec_ or whsk_, with spaces between them", "a URL such as http://collector:4318",
	"a word and a pause in ms, s, m or h, such as exponential 1s", "a name, or empty",
	"a name; or a template of columns in braces, such as {tenant}:{order_id}, or empty",
	"a SET list such as status = 'FAILED', last_error = {last_error}, retry_count = {attempts}",
	"text with {topic} and columns of the row in braces, such as {topic}-value or com.shop.{event_type}",
	"text with {id}, {event_type}, {aggregate_type}, {created_at} and {key}, at most 255 long",
	"text with {id}, {event_type}, {aggregate_type}, {created_at} and {key}",
	"a list of numbers from 300 to 599", "a list of numbers from 300 to 599, or empty", "an account number of 12 digits",
	"a name of the IANA time zone database such as America/Lima or UTC", "0 to 1099511627776",
	"1 to 100000000", "0 to 100000000", "0s to 87600h", "1s to 87600h", "0 to 1048576GiB", "1KiB to 1024GiB",
}

// longKinds begin descriptions of formats that the page, or that of messages or RabbitMQ, has.
var longKinds = []string{
	"a topic name of a-z", "column: header name", "consumers by the name of their queue", "a stream's name",
}

// shorter leaves out of the table what the page says once above it.
var shorter = strings.NewReplacer(
	"a number with a unit (ms, s, m, h) from ", "",
	"a whole number from ", "",
	"a number from ", "",
	"a number of bytes, with or without a unit (KiB, MiB, GiB), from ", "",
	"a name as Postgres shows it, at most 63 bytes; or the same in double quotes, as in SQL", "a name",
	", which a name with a dot in it needs", "",
	"the path of a file", "a file",
	"the path of a directory", "a directory",
	"a program and its arguments, no argument with a comma", "a program",
	"characters, no control characters", "characters",
	"; the files below are read again at each connect", "",
	", read again at each connect", "",
	", read again at each request", "",
	"program and arguments that print ", "program that prints ",
	", run at each connect until what it prints expires; no shell", "",
	", run at each request until what it prints expires; no shell", "",
	"; columns that are headers of the message in braces, and {key}, the message key", "",
	"PEM file of trusted authorities", "PEM file of the authorities to trust",
)
