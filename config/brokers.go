package config

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// NATS is the servers of JetStream and how to talk to them.
type NATS struct {
	URL             string        `key:"url" help:"nats://host:port or tls://host:port, several with commas"`
	Stream          string        `key:"stream" help:"the stream of all subjects; empty: the one that takes the subject"`
	CredentialsFile string        `key:"credentials_file" help:"file with JWT and seed, read again at each connect"`
	Username        string        `key:"username" help:"user name"`
	PasswordFile    string        `key:"password_file" help:"file with the password, read again at each connect"`
	TokenFile       string        `key:"token_file" help:"file with a token instead of user and password, read again at each connect"`
	CreateStreams   CreateStreams `key:"create_streams"`
	TLS             NATSTLS       `key:"tls"`
}

// CreateStreams configures whether and how missing streams are created.
type CreateStreams struct {
	Enabled  bool `key:"enabled" help:"create a stream for a subject that none takes; false: its events wait, and the error names the command"`
	Replicas int  `key:"replicas" help:"replicas of a created stream"`
}

// NATSTLS secures the connections to NATS; nats.url decides whether there is TLS at all.
type NATSTLS struct {
	CAFile   string `key:"ca_file" help:"PEM file of the authorities to trust; empty: the system's"`
	CertFile string `key:"cert_file" help:"PEM file of the client certificate"`
	KeyFile  string `key:"key_file" help:"PEM file of the client certificate's key"`
}

// Redis is the server of Redis Streams.
type Redis struct {
	URL          string `key:"url" help:"redis://user@host:port/database, rediss:// for TLS"`
	PasswordFile string `key:"password_file" help:"file with the password, read again at each connect"`
	MaxLength    int    `key:"max_length" help:"trim streams to about so many entries; 0: never"`
}

// RabbitMQ is the server and how messages are routed.
type RabbitMQ struct {
	URL          string `key:"url" help:"amqp://user@host:port/vhost, amqps:// for TLS; message.topic is the exchange"`
	PasswordFile string `key:"password_file" help:"file with the password, read again at each connect"`
	RoutingKey   string `key:"routing_key" help:"routing key; columns that are headers of the message in braces, and {key}, the message key"`
}

// routingKey allows what a driver can fill in: columns that every message has as headers, and the key.
func routingKey() rule {
	const allowed = "text with {id}, {event_type}, {aggregate_type}, {created_at} and {key}, at most 255 long"
	return typed(allowed, func(v string) string {
		parts, err := ParseTemplate(v)
		if err != nil {
			return err.Error()
		}
		for _, p := range parts {
			if p.Column != "" && p.Column != "key" && !slices.Contains(StandardHeaders[:], p.Column) {
				return fmt.Sprintf("{%s} is no header of each message", p.Column)
			}
		}
		return accept(len(v) <= maxRoutingKey)
	})
}

// maxRoutingKey is the longest routing key of AMQP, in bytes.
const maxRoutingKey = 255

// serverURLs allows URLs of the schemes, without a password that ends in the wrong place.
func serverURLs(file string, schemes ...string) rule {
	allowed := schemes[0] + "://host:port"
	if len(schemes) > 1 {
		allowed += ", also " + strings.Join(schemes[1:], ", ")
	}
	return typed(allowed, func(v string) string {
		for one := range strings.SplitSeq(v, ",") {
			u, err := url.Parse(strings.TrimSpace(one))
			if err != nil {
				return fmt.Sprintf("it is not a URL (percent-encode special characters of the password, "+
					"or leave it out and use %s)", file)
			}
			if !slices.Contains(schemes, u.Scheme) || u.Host == "" {
				return notAllowed
			}
		}
		return ""
	})
}
