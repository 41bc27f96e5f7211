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
	wholePair("kafka.tls", func(c *Config) CertFiles { return CertFiles{"", c.Kafka.TLS.CertFile, c.Kafka.TLS.KeyFile} }),
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
			sources := countTrue(s.TokenFile != "", len(s.TokenCommand) > 0, s.AWSRegion != "", s.OAuth.TokenURL != "")
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

// secured are the rules about certificates and logins of brokers other than Kafka, and of the registry.
var secured = slices.Concat(
	// A server of NATS says itself whether there is TLS, and with any of the files the relay insists on it.
	[]relation{wholePair("nats.tls", func(c *Config) CertFiles { return c.NATS.TLS }), natsLogins},
	beside("redis.tls", "redis.url", "rediss://", func(c *Config) (CertFiles, string) { return c.Redis.TLS, c.Redis.URL }),
	beside("rabbitmq.tls", "rabbitmq.url", "amqps://",
		func(c *Config) (CertFiles, string) { return c.RabbitMQ.TLS, c.RabbitMQ.URL }),
	beside("rabbitmq_stream.tls", "rabbitmq.stream_url", "rabbitmq-stream+tls://",
		func(c *Config) (CertFiles, string) { return c.RabbitStream.TLS, c.RabbitMQ.StreamURL }),
	beside("webhook.tls", "webhook.url", "https://", func(c *Config) (CertFiles, string) {
		return c.Webhook.TLS, fmt.Sprint(c.Webhook.URL, c.Webhook.Endpoints)
	}),
	beside("registry.tls", "registry.url", "https://",
		func(c *Config) (CertFiles, string) { return c.Registry.TLS, c.Registry.URL }),
)

// beside are the rules of certificates beside URLs that say whether there is TLS. A file that is named and not used
// would be a lie, and plain text instead of TLS a leak.
func beside(section, url, scheme string, of func(*Config) (CertFiles, string)) []relation {
	useless := relation{
		keys:    []string{url, section + ".ca_file", section + ".cert_file", section + ".key_file"},
		allowed: scheme + " when a key of " + section + " is set",
		check: func(c *Config) string {
			if files, urls := of(c); files != (CertFiles{}) && !strings.Contains(urls, scheme) {
				return "a key of " + section + " is set, and nothing has " + scheme
			}
			return ""
		},
	}
	return []relation{useless, wholePair(section, func(c *Config) CertFiles { files, _ := of(c); return files })}
}

// wholePair wants a certificate with its key.
func wholePair(section string, of func(*Config) CertFiles) relation {
	return relation{
		keys:    []string{section + ".cert_file", section + ".key_file"},
		allowed: "both of cert_file and key_file, or none",
		check: func(c *Config) string {
			if f := of(c); (f.CertFile == "") != (f.KeyFile == "") {
				return fmt.Sprintf("cert_file %q with key_file %q", f.CertFile, f.KeyFile)
			}
			return ""
		},
	}
}

var natsLogins = relation{
	keys:    []string{"nats.credentials_file", "nats.nkey_file", "nats.username", "nats.password_file", "nats.token_file"},
	allowed: "one of credentials_file, nkey_file, token_file, and username with password_file, or none",
	check: func(c *Config) string {
		n, user := c.NATS, c.NATS.Username != ""
		if user != (n.PasswordFile != "") ||
			countTrue(n.CredentialsFile != "", n.NKeyFile != "", n.TokenFile != "", user) > 1 {
			return "more than one of them, or half of user and password"
		}
		return ""
	},
}

func connection() rule {
	return typed("postgres://user@host:port/database?options, or host=… user=… dbname=…", func(v string) string {
		if !strings.Contains(v, "://") {
			return accept(strings.Contains(v, "=") && !strings.ContainsAny(v, "\x00"))
		}
		u, err := url.Parse(v)
		if err != nil && socketHost.MatchString(v) {
			return "the part behind the @ is not a host: " + socketForm
		}
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

// socketHost is a socket's directory where libpq takes one and URLs have none.
var socketHost = regexp.MustCompile(`(?i)://(?:[^/?#]*@)?%2f`)

const socketForm = "a socket's directory is given as ?host=, as in " +
	"postgres:///shop?host=/var/run/postgresql&port=5432&user=relay"

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
				return name + " has its own key, or is a secret that a program of kafka.sasl.token_command can send"
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
