package config

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Registry is the schema registry by whose schemas messages are made, and how to talk to it.
type Registry struct {
	URL             string    `key:"url" help:"http:// or https:// URL of a registry with Confluent's API; several with commas; required with avro, protobuf and json_schema"`
	Username        string    `key:"username" help:"user name; empty: no basic authentication"`
	PasswordFile    string    `key:"password_file" help:"file with the password, read again at each request"`
	PasswordCommand []string  `key:"password_command" help:"program and arguments that print the password, run at each request until what it prints expires; no shell"`
	TokenFile       string    `key:"token_file" help:"file with a bearer token instead of user and password, read again at each request"`
	TokenCommand    []string  `key:"token_command" help:"program and arguments that print a bearer token, run at each request until what it prints expires; no shell"`
	TLS             CertFiles `key:"tls"`
	Subject         string    `key:"subject" help:"subject of an event's schema; {topic} and columns of the row in braces"`
	Record          string    `key:"record" help:"full name of the record or message: com.shop.{event_type}; empty: the schema's own, or its first message"`
	Version         string    `key:"version" help:"version of each subject's schema: latest, or a number"`
	Files           string    `key:"files" help:"directory of schemas, <subject>.avsc, .proto or .json, used instead of the registry's; ids are looked up there; empty: none"`
	AutoRegister    bool      `key:"auto_register" help:"register missing schemas of registry.files; false: their events wait"`
	CacheTTL        Duration  `key:"cache_ttl" help:"renew latest versions in the background after this time"`
	Timeout         Duration  `key:"timeout" help:"maximum time for one request"`
}

// LatestVersion selects the newest version of a schema.
const LatestVersion = "latest"

func defaultRegistry() Registry {
	return Registry{Subject: "{topic}-value", Version: LatestVersion, CacheTTL: Duration(time.Minute),
		Timeout: Duration(5 * time.Second)}
}

// NeedsRegistry reports whether messages are made by the schemas of a registry.
func (m Message) NeedsRegistry() bool {
	return m.Format == FormatAvro || m.Format == FormatProtobuf || m.Format == FormatJSONSchema
}

// subjectTemplate allows any text: registries have no rules for subjects.
func subjectTemplate(allowed string) rule {
	return typed(allowed, func(v string) string {
		if _, err := ParseTemplate(v); err != nil {
			return err.Error()
		}
		return accept(!strings.ContainsAny(v, "\x00\n"))
	})
}

// registries are the rules about keys of the registry that depend on each other.
var registries = []relation{
	{
		keys:    []string{"registry.url", "message.format"},
		allowed: "a URL, with message.format avro, protobuf or json_schema",
		check: func(c *Config) string {
			if c.Message.NeedsRegistry() && c.Registry.URL == "" {
				return "no registry.url with message.format " + c.Message.Format
			}
			return ""
		},
	},
	{
		keys:    []string{"message.format", "sink"},
		allowed: "with avro, protobuf and json_schema, sink kafka",
		check: func(c *Config) string {
			if c.Message.NeedsRegistry() && c.Sink != SinkKafka {
				return fmt.Sprintf("%s with sink %s", c.Message.Format, c.Sink)
			}
			return ""
		},
	},
	{
		keys: []string{"registry.username", "registry.password_file", "registry.password_command",
			"registry.token_file", "registry.token_command"},
		allowed: "username and one of password_file and password_command, or one of token_file and token_command, or none",
		check: func(c *Config) string {
			r := c.Registry
			passwords := countTrue(r.PasswordFile != "", len(r.PasswordCommand) > 0)
			tokens := countTrue(r.TokenFile != "", len(r.TokenCommand) > 0)
			named := r.Username != ""
			if named && passwords == 1 && tokens == 0 || !named && passwords == 0 && tokens <= 1 {
				return ""
			}
			return fmt.Sprintf("username %q, password_file %q, password_command %s, token_file %q, token_command %s",
				r.Username, r.PasswordFile, formatList(r.PasswordCommand), r.TokenFile, formatList(r.TokenCommand))
		},
	},
	{
		keys:    []string{"registry.files", "registry.auto_register"},
		allowed: "a directory of schemas, or registry.auto_register false: there is nothing to register",
		check: func(c *Config) string {
			if c.Registry.AutoRegister && c.Registry.Files == "" {
				return "registry.auto_register true without registry.files"
			}
			return ""
		},
	},
}

// countTrue is how many are true.
func countTrue(set ...bool) (n int) {
	for _, is := range set {
		if is {
			n++
		}
	}
	return n
}

// SubjectColumns are the columns that the subject and the record of an event are made of, {topic} apart.
func (r Registry) SubjectColumns() (columns []string) {
	for _, text := range []string{r.Subject, r.Record} {
		parts, _ := ParseTemplate(text) // their rule has checked them
		for _, p := range parts {
			if p.Column != "" && p.Column != EventTopic && !slices.Contains(columns, p.Column) {
				columns = append(columns, p.Column)
			}
		}
	}
	return columns
}
