package config

import "fmt"

// logins are the rules about TLS and SASL.
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
		allowed: "mechanism, username and one of password_file and password_command, or none",
		check: func(c *Config) string {
			s := c.Kafka.SASL
			file, command := s.PasswordFile != "", len(s.PasswordCommand) > 0
			all := s.Mechanism != "" && s.Username != "" && file != command
			if none := s.Mechanism == "" && s.Username == "" && !file && !command; !all && !none {
				return fmt.Sprintf("mechanism %q, username %q, password_file %q, password_command %s", s.Mechanism, s.Username,
					s.PasswordFile, formatList(s.PasswordCommand))
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
}
