package aws

import (
	"context"
	"errors"
	"fmt"
	"strings"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/sink"
)

// entryError is a service's reason for not taking an entry.
type entryError struct{ Code, Message string }

// Error implements error.
func (e *entryError) Error() string { return e.Code + ": " + e.Message }

// ErrorCode implements [smithy.APIError].
func (e *entryError) ErrorCode() string { return e.Code }

// ErrorMessage implements [smithy.APIError].
func (e *entryError) ErrorMessage() string { return e.Message }

// ErrorFault implements [smithy.APIError].
func (e *entryError) ErrorFault() smithy.ErrorFault { return smithy.FaultUnknown }

// trouble is why entries were not taken.
type trouble struct {
	verdict sink.Verdict
	of      sink.Trouble
	err     error
	code    string
	reason  *sink.Reason // with Refused
	missing bool         // there is no such destination
}

// graver returns the graver of two troubles; the other may be nil.
func (t *trouble) graver(other *trouble) *trouble {
	if other != nil && other.of >= t.of {
		return other
	}
	return t
}

// meaning is the class of a service's error code.
type meaning uint8

const (
	unclear   meaning = iota
	fault             // of this entry
	throttled         // too many requests, of us or of all
	missing           // there is no such destination
	forbidden         // a right is missing
	encrypted         // the destination's KMS key cannot be used
	unknownID         // the login is not known, or not signed as it should be
	renewable         // the login has expired
	passing           // the service has an error of its own
	stuck             // the destination is in a state in which it takes nothing
)

// meanings are the codes of the three services, and those that all services of AWS have ("Common Errors" in each API
// reference), without what comes before a dot.
var meanings = map[string]meaning{
	"InvalidMessageContents": fault, "InvalidParameterValue": fault, "InvalidParameter": fault,
	"InvalidAttributeValue": fault, "ParameterValueInvalid": fault, "BatchRequestTooLong": fault,
	"ValidationError": fault, "ValidationException": fault, "MalformedDetail": fault, "InvalidArgument": fault,
	"RequestEntityTooLarge": fault, "NotAuthorizedForSourceException": fault,
	"NotAuthorizedForDetailTypeException": fault, "InvalidParameterValueException": fault,

	"RequestThrottled": throttled, "ThrottlingException": throttled, "Throttling": throttled, "Throttled": throttled,
	"ThrottledException": throttled, "TooManyRequestsException": throttled, "RequestLimitExceeded": throttled,
	"OverLimit": throttled, "KmsThrottled": throttled, "KMSThrottling": throttled, "SlowDown": throttled,
	"KmsThrottlingException": throttled, "LimitExceededException": throttled,

	"QueueDoesNotExist": missing, "NonExistentQueue": missing, "NotFound": missing, "NotFoundException": missing,
	"ResourceNotFoundException": missing, "ResourceNotFound": missing,

	"AccessDenied": forbidden, "AccessDeniedException": forbidden, "AuthorizationError": forbidden,
	"AuthorizationErrorException": forbidden, "UnauthorizedOperation": forbidden, "NotAuthorized": forbidden,

	"KmsAccessDenied": encrypted, "KmsDisabled": encrypted, "KmsInvalidKeyUsage": encrypted,
	"KmsInvalidState": encrypted, "KmsNotFound": encrypted, "KmsOptInRequired": encrypted, "KMSAccessDenied": encrypted,
	"KMSDisabled": encrypted, "KMSInvalidState": encrypted, "KMSNotFound": encrypted, "KMSOptInRequired": encrypted,
	"KmsAccessDeniedException": encrypted, "KmsNotFoundException": encrypted, "KmsDisabledException": encrypted,
	"KmsInvalidStateException": encrypted,

	"InvalidClientTokenId": unknownID, "UnrecognizedClientException": unknownID, "SignatureDoesNotMatch": unknownID,
	"InvalidSignatureException": unknownID, "IncompleteSignature": unknownID, "MissingAuthenticationToken": unknownID,
	"IncompleteSignatureException": unknownID, "MissingAuthenticationTokenException": unknownID,
	"InvalidAccessKeyId": unknownID, "OptInRequired": unknownID, "RequestExpired": unknownID, "InvalidSecurity": unknownID,

	"ExpiredToken": renewable, "ExpiredTokenException": renewable,

	"InternalError": passing, "InternalFailure": passing, "InternalException": passing, "ServiceUnavailable": passing,
	"InternalServerError": passing, "ServiceUnavailableException": passing,

	"QueueDeletedRecently": stuck, "UnsupportedOperation": stuck, "OperationDisabledException": stuck,
	"InvalidAddress": stuck, "PurgeQueueInProgress": stuck,
}

// codeOf returns the service's error code ("" if there is none), its meaning, and the HTTP status (0 without answer).
func codeOf(err error) (code string, m meaning, status int) {
	if answer, is := errors.AsType[*awshttp.ResponseError](err); is {
		status = answer.HTTPStatusCode()
	}
	var api smithy.APIError
	if !errors.As(err, &api) {
		return "", unclear, status
	}
	code = strings.Replace(api.ErrorCode(), "KMS.", "Kms", 1)
	code = code[strings.LastIndexAny(code, ".#")+1:]
	return code, meanings[code], status
}

func isMissing(err error) bool {
	_, m, _ := codeOf(err)
	return m == missing
}

// explain turns an error of a service into trouble of the topic, with the remedy.
func (d *Driver) explain(topic string, err error) *trouble {
	code, m, status := codeOf(err)
	t := &trouble{code: code, err: fmt.Errorf("%s: %w", d.service.Place(topic), short(err, code))}
	switch {
	case code == "" && (status < 400 || status == 408): // an answer that was cut off says 200
		return d.unanswered(t)
	case m == unclear && status >= 500:
		m = passing
	case m == unclear && status == 429:
		m = throttled
	}
	if meanings[code] == unclear {
		t.code = "OTHER"
	}
	d.Reached()
	t.verdict, t.of = sink.NotWritten, sink.TopicTrouble
	switch m {
	case fault:
		t.verdict = sink.Refused
		t.reason = &sink.Reason{Class: outbox.Permanent, Code: code, Text: t.err.Error()}
	case throttled:
		t.of = sink.PartitionTrouble
	case missing:
		t.missing = true
		t.err = gone{fmt.Errorf("%w; %s", t.err, d.config.Advice(topic))}
	case forbidden:
		t.err = gone{fmt.Errorf("%w; the relay's policy needs the statement %s", t.err, d.service.Grant(topic))}
	case encrypted:
		t.err = gone{fmt.Errorf("%w; the KMS key of the destination must be enabled, its policy must let the relay use it, "+
			`and the relay's policy needs the statement {"Effect": "Allow", "Action": ["kms:GenerateDataKey", `+
			`"kms:Decrypt"], "Resource": "ARN of the key"}`, t.err)}
	case renewable, unknownID:
		d.login.renew()
		t.of = sink.ConfigurationTrouble
		t.err = fmt.Errorf("%w; the credentials are not valid, or the clock is wrong: they are looked for again at the next "+
			"attempt (%s)", t.err, chain)
	case passing:
		t.verdict, t.of = sink.Unknown, sink.ClusterTrouble
	}
	return t
}

// unanswered completes the trouble of a request without an answer. The caller knows whether the request has left.
func (d *Driver) unanswered(t *trouble) *trouble {
	t.verdict, t.of = sink.Unknown, sink.ClusterTrouble
	if errors.Is(t.err, context.DeadlineExceeded) {
		t.err = fmt.Errorf("no answer for %v: %w", d.config.Timeout, t.err)
	}
	d.Lost(t.err)
	return t
}

// short is the error without the SDK's notes on the operation.
func short(err error, code string) error {
	var api smithy.APIError
	if code == "" || !errors.As(err, &api) {
		return err
	}
	if _, entry := api.(*entryError); entry {
		return err
	}
	if text := api.ErrorMessage(); text != "" {
		return fmt.Errorf("%s: %s", code, text)
	}
	return errors.New(code)
}

// gone is the error of a destination that is missing, or that the relay may not write to: what was sent to it and not
// answered stays unknown for longer than it recognizes repeats.
type gone struct{ error }

// Gone implements [sink.Gone].
func (gone) Gone() bool { return true }

// Unwrap is the error itself.
func (g gone) Unwrap() error { return g.error }
