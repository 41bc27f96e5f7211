package nats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	client "github.com/nats-io/nats.go"

	"github.com/cdc-relay/cdc-relay/sink"
)

// api is the prefix of JetStream's own subjects (nats-server, jetstream_api.go). Requests to it are answered by the
// leader.
const api = "$JS.API."

// streamInfo is the part of a stream's info that the driver uses.
type streamInfo struct {
	Config struct {
		Name       string   `json:"name"`
		Subjects   []string `json:"subjects"`
		MaxMsgSize int      `json:"max_msg_size"`
		Retention  string   `json:"retention"`
		Replicas   int      `json:"num_replicas"`
		Atomic     bool     `json:"allow_atomic"`
		// MaxPerSubject is -1 where there is no such limit.
		MaxPerSubject int `json:"max_msgs_per_subject"`
	} `json:"config"`
	State struct {
		FirstSeq int64 `json:"first_seq"`
		LastSeq  int64 `json:"last_seq"`
		Deleted  int64 `json:"num_deleted"` // messages that are gone between the two
	} `json:"state"`
	Cluster *struct { // nil: the server is alone
		Leader string `json:"leader"` // the server's name
	} `json:"cluster"`
}

// consumed reports whether the stream deletes what was consumed: it has the retention interest or workqueue.
func (i *streamInfo) consumed() bool {
	return i.Config.Retention != "" && i.Config.Retention != "limits"
}

// storedMessage is a message of a stream.
type storedMessage struct {
	Subject string `json:"subject"`
	Seq     int64  `json:"seq"`
	Headers []byte `json:"hdrs"`
	Data    []byte `json:"data"`
}

// answerPatience is how long one answer to a question is waited for. A leader that dies takes the questions with it,
// and there is a new one within about 9 s (nats-server, raft.go: maxElectionTimeoutDefault).
const answerPatience = 2 * time.Second

// question is ask for what changes nothing, so it is asked again until there is an answer or ctx ends.
func question(ctx context.Context, nc *client.Conn, subject string, request, into any) error {
	for {
		bounded, cancel := context.WithTimeout(ctx, answerPatience)
		err := ask(bounded, nc, subject, request, into)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			return err
		}
	}
}

// ask sends a request to JetStream and reads the answer into into, which may be nil.
func ask(ctx context.Context, nc *client.Conn, subject string, request, into any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("write a request for %s: %w", subject, err)
	}
	m, err := nc.RequestWithContext(ctx, api+subject, body)
	if errors.Is(err, client.ErrNoResponders) {
		return fmt.Errorf("ask %s: %w", subject, noResponders())
	}
	if err != nil {
		return fmt.Errorf("ask %s: %w", subject, unanswered(nc, api+subject, err))
	}
	return read(m, subject, into)
}

// read reads an answer of JetStream.
func read(m *client.Msg, subject string, into any) error {
	var failed struct {
		Error *apiError `json:"error"`
	}
	if len(m.Data) > 0 {
		if err := json.Unmarshal(m.Data, &failed); err != nil {
			return fmt.Errorf("read the answer to %s: %w", subject, err)
		}
	}
	if err := answered(m, failed.Error); err != nil {
		return fmt.Errorf("ask %s: %w", subject, err)
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(m.Data, into); err != nil {
		return fmt.Errorf("read the answer to %s: %w", subject, err)
	}
	return nil
}

func askStream(ctx context.Context, nc *client.Conn, name string) (info streamInfo, err error) {
	err = question(ctx, nc, "STREAM.INFO."+name, struct{}{}, &info)
	return info, err
}

// streamOf is the name of the stream that takes the subject, "" if there is none.
func streamOf(ctx context.Context, nc *client.Conn, subject string) (string, error) {
	var names struct {
		Streams []string `json:"streams"`
	}
	request := struct {
		Subject string `json:"subject"`
	}{subject}
	if err := question(ctx, nc, "STREAM.NAMES", request, &names); err != nil {
		return "", err
	}
	if len(names.Streams) == 0 {
		return "", nil
	}
	return names.Streams[0], nil
}

// duplicateWindow of a new stream, in nanoseconds: the chain's ids need none, and 2 minutes, the default, keep each id
// in the server's memory.
const duplicateWindow = 1_000_000_000

// createStream makes the stream for the subject, or adds the subject to it.
func createStream(ctx context.Context, nc *client.Conn, name, subject string, replicas int) error {
	var have struct {
		Config map[string]any `json:"config"`
	}
	err := ask(ctx, nc, "STREAM.INFO."+name, struct{}{}, &have)
	if isCode(err, codeStreamNotFound) {
		config := map[string]any{
			"name": name, "subjects": []string{subject}, "storage": "file", "retention": "limits", "num_replicas": replicas,
			"discard": "old", "duplicate_window": duplicateWindow, "allow_direct": true,
			"allow_atomic": true, // servers before 2.12 do not know it, and pass over it
		}
		return ask(ctx, nc, "STREAM.CREATE."+name, config, nil)
	}
	if err != nil {
		return err
	}
	subjects, _ := have.Config["subjects"].([]any)
	have.Config["subjects"] = append(subjects, subject)
	return ask(ctx, nc, "STREAM.UPDATE."+name, have.Config, nil)
}

// streamName makes a stream's name of a subject: names have no dots.
func streamName(subject string) string { return strings.ReplaceAll(subject, ".", "_") }

// subjectProblem says why the topic can be no subject, or "".
func subjectProblem(topic string) string {
	if strings.HasPrefix(topic, "$") {
		return "subjects that begin with $ are the server's"
	}
	for token := range strings.SplitSeq(topic, ".") {
		if token == "" || strings.ContainsAny(token, " \t\r\n*>") {
			return "a subject is of tokens with dots between, without spaces and wildcards"
		}
	}
	return ""
}

// topicError is why a topic cannot be sent to.
type topicError struct{ text string }

func (e *topicError) Error() string         { return e.text }
func (e *topicError) Trouble() sink.Trouble { return sink.TopicTrouble }
