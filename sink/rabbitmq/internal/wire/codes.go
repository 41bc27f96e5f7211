package wire

import (
	"errors"
	"fmt"

	"github.com/cdc-relay/cdc-relay/sink"
)

// NoStream is the answer to a question about a stream that is missing.
const NoStream Answer = 2

// AccessRefused is the answer to a user who may not do that with the stream.
const AccessRefused Answer = 16

// Other codes of the stream protocol.
const (
	codeOK            = 1
	codeStreamExists  = 5
	codeNotAvailable  = 6
	codeLoginFailed   = 8
	codeLoopbackOnly  = 11
	codeNoVirtualHost = 12
	codeFrameTooLarge = 14
	codeInternal      = 15
	codePrecondition  = 17
	codeNoPublisher   = 18
	codeUnknownFrame  = 13
)

// Answer is a response code other than OK.
type Answer uint16

var answers = map[Answer]string{
	NoStream: "no such stream", codeStreamExists: "the stream exists",
	codeNotAvailable:  "the stream is not available: it has no leader at present, or was deleted",
	codeLoginFailed:   "wrong user or password; correct rabbitmq.stream_url and rabbitmq.password_file",
	codeLoopbackOnly:  "the user guest may log in from the server itself only",
	codeNoVirtualHost: "no such virtual host, or no permission for it; see rabbitmqctl set_permissions",
	codeFrameTooLarge: "the frame is too large",
	codeInternal:      "internal error", AccessRefused: "the user lacks the permission to write or to read",
	codePrecondition: "precondition failed", codeNoPublisher: "no such publisher",
	codeUnknownFrame: "the server does not know the question",
}

func (a Answer) Error() string {
	if text := answers[a]; text != "" {
		return fmt.Sprintf("%s (%d)", text, uint16(a))
	}
	return fmt.Sprintf("RabbitMQ answered %d", uint16(a))
}

// Trouble implements [sink.Troubled].
func (a Answer) Trouble() sink.Trouble {
	switch a {
	case NoStream, AccessRefused, codePrecondition:
		return sink.TopicTrouble
	case codeNotAvailable, codeNoPublisher:
		return sink.PartitionTrouble
	case codeLoginFailed, codeLoopbackOnly, codeNoVirtualHost:
		return sink.ConfigurationTrouble
	}
	return sink.ClusterTrouble
}

// Gone implements [sink.Gone].
func (a Answer) Gone() bool { return a == NoStream }

// IsAnswer reports whether the server said it: it is there.
func IsAnswer(err error) bool {
	var a Answer
	return errors.As(err, &a)
}

// ConfigurationError is one that a person must see to.
type ConfigurationError struct{ Err error }

func (c ConfigurationError) Error() string { return c.Err.Error() }
func (c ConfigurationError) Unwrap() error { return c.Err }

// Trouble implements [sink.Troubled].
func (ConfigurationError) Trouble() sink.Trouble { return sink.ConfigurationTrouble }
