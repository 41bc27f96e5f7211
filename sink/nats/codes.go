package nats

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	client "github.com/nats-io/nats.go"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/sink"
)

// apiError is an error answer of a server (errors.json of nats-server).
type apiError struct {
	Code        int    `json:"code"`
	ErrCode     int    `json:"err_code"`
	Description string `json:"description"`
}

func (e *apiError) Error() string {
	return fmt.Sprintf("the server answered %q (%d)", e.Description, e.ErrCode)
}

// Trouble implements [sink.Troubled].
func (e *apiError) Trouble() sink.Trouble { return meaningOf(e.ErrCode).trouble }

// Gone implements [sink.Gone]. The leader of all streams answers it about a name; a stream that does not take the
// subject any more is still there.
func (e *apiError) Gone() bool { return e.ErrCode == codeStreamNotFound }

// Codes that the driver acts on by themselves.
const (
	codeStreamNotFound  = 10059
	codeMessageNotFound = 10037
	codeBatchTooLarge   = 10199 // the server's limit is lower than batchRecords
	codeNoResponders    = 503   // not an err_code: the status of an answer by no one
)

// meaning is the interpretation of a publish error code.
type meaning struct {
	name    string
	moved   bool         // the stream has another end
	trouble sink.Trouble // not written, try again
	class   outbox.ErrorClass
	relearn bool // ask again which stream takes the subject
}

var meanings = map[int]meaning{
	10071: {name: "WRONG_LAST_SEQUENCE", moved: true},
	10070: {name: "WRONG_LAST_MSG_ID", moved: true},
	10164: {name: "WRONG_LAST_SEQUENCE", moved: true},

	10054: {name: "MESSAGE_TOO_LARGE", class: outbox.Permanent},
	10097: {name: "HEADERS_TOO_LARGE", class: outbox.Permanent},

	10060: {name: "STREAM_MISMATCH", trouble: sink.TopicTrouble, relearn: true},
	10059: {name: "STREAM_NOT_FOUND", trouble: sink.TopicTrouble, relearn: true},
	503:   {name: "NO_RESPONDERS", trouble: sink.TopicTrouble, relearn: true},
	10077: {name: "STREAM_STORE_FAILED", trouble: sink.TopicTrouble}, // full, with discard new
	10174: {name: "ATOMIC_PUBLISH_DISABLED", trouble: sink.PartitionTrouble, relearn: true},
	10176: {name: "ATOMIC_PUBLISH_INCOMPLETE", trouble: sink.PartitionTrouble},
	10109: {name: "STREAM_SEALED", trouble: sink.TopicTrouble},
	10039: {name: "JETSTREAM_NOT_ENABLED_FOR_ACCOUNT", trouble: sink.TopicTrouble},

	10008: {name: "NOT_AVAILABLE", trouble: sink.ClusterTrouble},
	10009: {name: "NO_LEADER", trouble: sink.ClusterTrouble},
	10023: {name: "INSUFFICIENT_RESOURCES", trouble: sink.ClusterTrouble},
	10028: {name: "MEMORY_EXCEEDED", trouble: sink.ClusterTrouble},
	10047: {name: "STORAGE_EXCEEDED", trouble: sink.ClusterTrouble},
	10076: {name: "JETSTREAM_NOT_ENABLED", trouble: sink.ClusterTrouble},
	10118: {name: "STREAM_OFFLINE", trouble: sink.ClusterTrouble},
}

// meaningOf is the code's meaning. What is not known was refused by the stream: not written, and tried again.
func meaningOf(code int) meaning {
	if m, known := meanings[code]; known {
		return m
	}
	return meaning{name: fmt.Sprintf("NATS_%d", code), trouble: sink.PartitionTrouble}
}

func isCode(err error, code int) bool {
	var api *apiError
	return errors.As(err, &api) && api.ErrCode == code
}

// noResponders is the error of an answer by no one: no stream takes the subject, JetStream is off, or no leader is
// there at the moment. The servers do not tell these apart.
func noResponders() *apiError {
	return &apiError{Code: codeNoResponders, ErrCode: codeNoResponders,
		Description: "no responders: no stream takes the subject, or it has no leader at present"}
}

// unanswered is the error of a question to that subject, or what it begins with: that it was forbidden, if it was. The
// server says so beside all questions, and no one answers.
func unanswered(nc *client.Conn, subject string, err error) error {
	refused := nc.LastError()
	if !errors.Is(refused, client.ErrPermissionViolation) {
		return err
	}
	for _, about := range []string{subject, client.InboxPrefix} {
		if strings.Contains(refused.Error(), `"`+about) {
			return &topicError{forbidden(refused)}
		}
	}
	return err
}

var refusedSubject = regexp.MustCompile(`(?i)(publish|subscription) to "([^"]+)"`)

// forbidden says how the user gets the permission that it lacks.
func forbidden(refused error) string {
	of := refusedSubject.FindStringSubmatch(refused.Error())
	if of == nil {
		return refused.Error()
	}
	flag, list, subject := "--allow-pub", "publish", of[2]
	if strings.EqualFold(of[1], "subscription") {
		flag, list, subject = "--allow-sub", "subscribe", "_INBOX.>"
	}
	return fmt.Sprintf("%v; allow it: nsc edit user --name USER %s '%s', or %s in the permissions of the server's "+
		"configuration", refused, flag, subject, list)
}

// answered is the server's error in an answer, or nil.
func answered(m *client.Msg, api *apiError) error {
	if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
		return noResponders()
	}
	if api != nil {
		return api
	}
	return nil
}
