package config

import (
	"fmt"
	"maps"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// logins are the rules about TLS, SASL and tokens.
var logins = []relation{
	{
		// A file that is named and not used would be a lie, and plain text instead of TLS a leak.
		keys: []string{"kafka.tls.enabled", "kafka.tls.ca_file", "kafka.tls.cert_file", "kafka.tls.key_file",
			"kafka.tls.server_name"},
		allowed: "true when another key of kafka.tls is set",
		check: func(c *Config) string {
			if t := c.Kafka.TLS; !t.Enabled && t != (TLS{}) {
				return "another key of kafka.tls is set"
			}
			return ""
		},
	},
	{
		keys:    []string{"kafka.tls.cert_file", "kafka.tls.key_file"},
		allowed: "both of cert_file and key_file, or none",
		check: func(c *Config) string {
			if t := c.Kafka.TLS; (t.CertFile == "") != (t.KeyFile == "") {
				return fmt.Sprintf("cert_file %q with key_file %q", t.CertFile, t.KeyFile)
			}
			return ""
		},
	},
	{
		keys: []string{"kafka.sasl.mechanism", "kafka.sasl.username", "kafka.sasl.password_file",
			"kafka.sasl.password_command"},
		allowed: "mechanism, username and one of password_file and password_command, or none; with OAUTHBEARER none of " +
			"the last three",
		check: func(c *Config) string {
			s := c.Kafka.SASL
			file, command := s.PasswordFile != "", len(s.PasswordCommand) > 0
			all := s.Mechanism != "" && s.Username != "" && file != command && s.Mechanism != OAuthBearer
			none := (s.Mechanism == "" || s.Mechanism == OAuthBearer) && s.Username == "" && !file && !command
			if !all && !none {
				return fmt.Sprintf("mechanism %q, username %q, password_file %q, password_command %s", s.Mechanism, s.Username,
					s.PasswordFile, formatList(s.PasswordCommand))
			}
			return ""
		},
	},
	{
		keys: []string{"kafka.sasl.token_file", "kafka.sasl.token_command", "kafka.sasl.aws_region",
			"kafka.sasl.oauth.token_url", "kafka.sasl.extensions", "kafka.sasl.mechanism"},
		allowed: "with OAUTHBEARER one of token_file, token_command, aws_region and oauth.token_url, otherwise none of " +
			"them, and no extensions",
		check: func(c *Config) string {
			s := c.Kafka.SASL
			sources := 0
			for _, set := range []bool{s.TokenFile != "", len(s.TokenCommand) > 0, s.AWSRegion != "",
				s.OAuth.TokenURL != ""} {
				if set {
					sources++
				}
			}
			bearer := s.Mechanism == OAuthBearer
			if bearer && sources == 1 || !bearer && sources == 0 && len(s.Extensions) == 0 {
				return ""
			}
			return fmt.Sprintf("mechanism %q, token_file %q, token_command %s, aws_region %q, oauth.token_url %q, %d extensions",
				s.Mechanism, s.TokenFile, formatList(s.TokenCommand), s.AWSRegion, s.OAuth.TokenURL, len(s.Extensions))
		},
	},
	{
		keys: []string{"kafka.sasl.oauth.token_url", "kafka.sasl.oauth.client_id", "kafka.sasl.oauth.client_secret_file",
			"kafka.sasl.oauth.scope", "kafka.sasl.oauth.parameters", "kafka.sasl.oauth.ca_file"},
		allowed: "token_url, client_id and client_secret_file, and what goes with them, or none of kafka.sasl.oauth",
		check: func(c *Config) string {
			o := c.Kafka.SASL.OAuth
			all := o.TokenURL != "" && o.ClientID != "" && o.ClientSecretFile != ""
			some := o.TokenURL != "" || o.ClientID != "" || o.ClientSecretFile != "" || o.Scope != "" ||
				len(o.Parameters) > 0 || o.CAFile != ""
			if some && !all {
				return fmt.Sprintf("token_url %q, client_id %q, client_secret_file %q", o.TokenURL, o.ClientID,
					o.ClientSecretFile)
			}
			return ""
		},
	},
	{
		keys:    []string{"postgres.password_file", "postgres.password_command"},
		allowed: "one of them, or none",
		check: func(c *Config) string {
			if p := c.Postgres; p.PasswordFile != "" && len(p.PasswordCommand) > 0 {
				return "both"
			}
			return ""
		},
	},
	{
		keys:    []string{"inbox.password_file", "inbox.url"},
		allowed: "with inbox.url, whose password it is; postgres.url has its own",
		check: func(c *Config) string {
			if c.Inbox.PasswordFile != "" && c.Inbox.URL == "" {
				return fmt.Sprintf("%q without inbox.url", c.Inbox.PasswordFile)
			}
			return ""
		},
	},
}

func connection() rule {
	return typed("postgres://user@host:port/database?options, or host=… user=… dbname=…", func(v string) string {
		if !strings.Contains(v, "://") {
			return accept(strings.Contains(v, "=") && !strings.ContainsAny(v, "\x00"))
		}
		u, err := url.Parse(v)
		if err != nil {
			return "it is not a URL (" + betterPassword + ")"
		}
		_, rest, _ := strings.Cut(v, "://")
		if at := strings.IndexAny(rest, "/?#"); at >= 0 && strings.Contains(rest[at:], "@") {
			// A /, ? or # of the password has ended it. Its parts would be taken for host and database, and errors would show
			// them as such.
			return "there is an @ behind the host, as if a password did not end where it should (" + betterPassword + ")"
		}
		return accept(u.Scheme == "postgres" || u.Scheme == "postgresql")
	})
}

const betterPassword = "percent-encode special characters of the password, or leave it out and use " +
	"postgres.password_file"

// spanEndpoint keeps secrets out of the URL, which is shown and logged.
func spanEndpoint() rule {
	return typed("a URL such as http://collector:4318, or empty", func(v string) string {
		u, err := url.Parse(v)
		switch {
		case v == "":
			return ""
		case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
			return notAllowed
		case u.User != nil:
			return "must not hold a password: give it in a header, by OTEL_EXPORTER_OTLP_HEADERS"
		}
		return ""
	})
}

// tokenEndpoint is where a client's secret is sent to: not in plain text through a network (RFC 6749, section 3.2), and
// not written into the URL.
func tokenEndpoint() rule {
	return typed("https://host/path, or http:// on this machine, or empty", func(v string) string {
		u, err := url.Parse(v)
		switch {
		case v == "":
			return ""
		case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
			return notAllowed
		case u.User != nil:
			return "must not hold a password: name the file of the secret in kafka.sasl.oauth.client_secret_file"
		case u.Scheme == "http" && u.Hostname() != "localhost" && !net.ParseIP(u.Hostname()).IsLoopback():
			return "http:// would show the client's secret to the network"
		}
		return ""
	})
}

// otherParameter knows those parameters of a token request that have keys of their own here, or are secrets.
var otherParameter = regexp.MustCompile(`secret|password|assertion|token|^grant_type$|^client_id$|^scope$`)

func tokenParameters() rule {
	return typed("names with values, such as {audience: kafka}", func(v map[string]string) string {
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if otherParameter.MatchString(name) {
				return name + " has a key of its own, or is a secret, which a program of kafka.sasl.token_command can send"
			}
		}
		return ""
	})
}

// As RFC 7628, section 3.1, has it; auth is the token's own name.
var extensionName, extensionValue = regexp.MustCompile(`^[A-Za-z]+$`), regexp.MustCompile(`^[\x20-\x7e\t\r\n]*$`)

func extensions() rule {
	const allowed = "names of letters with values in ASCII, such as {logicalCluster: lkc-1}"
	return typed(allowed, func(v map[string]string) string {
		for name, value := range v {
			if name == "auth" || !extensionName.MatchString(name) || !extensionValue.MatchString(value) {
				return fmt.Sprintf("%q is not allowed", name)
			}
		}
		return ""
	})
}
