package brokers_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	sqsclient "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/cdc-relay/cdc-relay/test/cutproxy"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// forSQS are the settings of a relay to FIFO queues of a server.
func forSQS(url string) []any { return []any{"sink", "sqs", "sqs.endpoint", url} }

// queueName is the FIFO queue of a topic.
func queueName(topic string) string { return strings.ReplaceAll(topic, ".", "-") + ".fifo" }

// sqsQueues makes and reads queues of a server, past any proxy.
type sqsQueues struct {
	server   *harness.ElasticMQ // nil: it is moto
	base     string             // of the queues' URLs
	standard bool               // not FIFO
	*sqsclient.Client
}

func startSQS(t testing.TB, java ...string) sqsQueues {
	t.Helper()
	harness.AWSLogin(t)
	server := harness.StartElasticMQ(t, java...)
	c, err := awsconfig.LoadDefaultConfig(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return sqsQueues{server: server, base: server.URL + "/000000000000/",
		Client: sqsclient.NewFromConfig(c, func(o *sqsclient.Options) { o.BaseEndpoint = &server.URL })}
}

func (q sqsQueues) make(t testing.TB, topic string) {
	t.Helper()
	input := &sqsclient.CreateQueueInput{QueueName: sdk.String(q.name(topic))}
	if !q.standard {
		input.Attributes = map[string]string{"FifoQueue": "true"}
	}
	if _, err := q.CreateQueue(t.Context(), input); err != nil {
		t.Fatal(err)
	}
}

// name is the queue of a topic.
func (q sqsQueues) name(topic string) string {
	if q.standard {
		return strings.TrimSuffix(queueName(topic), ".fifo")
	}
	return queueName(topic)
}

func (q sqsQueues) url(topic string) *string {
	return sdk.String(q.base + q.name(topic))
}

// take receives what comes next, at most ten messages, and deletes it, as a consumer does.
func (q sqsQueues) take(ctx context.Context, topic string, wait int32) (found []message, err error) {
	answer, err := q.ReceiveMessage(ctx, &sqsclient.ReceiveMessageInput{QueueUrl: q.url(topic), MaxNumberOfMessages: 10,
		WaitTimeSeconds: wait, MessageAttributeNames: []string{"All"}})
	if err != nil || len(answer.Messages) == 0 {
		return nil, err
	}
	var handled []types.DeleteMessageBatchRequestEntry
	for _, m := range answer.Messages {
		found = append(found, sqsMessage(m))
		handled = append(handled, types.DeleteMessageBatchRequestEntry{Id: m.MessageId, ReceiptHandle: m.ReceiptHandle})
	}
	_, err = q.DeleteMessageBatch(ctx, &sqsclient.DeleteMessageBatchInput{QueueUrl: q.url(topic), Entries: handled})
	return found, err
}

// read takes what is in the topic's queue.
func (q sqsQueues) read(t testing.TB, topic string) (found []message) {
	t.Helper()
	for {
		some, err := q.take(t.Context(), topic, 0)
		if err != nil {
			t.Fatal(err)
		}
		if found = append(found, some...); len(some) == 0 {
			return found
		}
	}
}

func sqsMessage(m types.Message) message {
	text := func(name string) string { return sdk.ToString(m.MessageAttributes[name].StringValue) }
	return message{id: text("id"), key: text("x-outbox-key"), payload: []byte(*m.Body),
		replayed: strings.Contains(text("x-outbox-headers"), `"`+replayHeader+`":"1"`)}
}

// moody is a proxy of HTTP that throttles each nth batch, and each nth entry of one, as SQS does.
func moody(t *testing.T, to string, n int64) (addr string, throttled *atomic.Int64) {
	t.Helper()
	target, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	count := new(atomic.Int64)
	throttled = new(atomic.Int64)
	forward := httputil.NewSingleHostReverseProxy(target)
	forward.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if !strings.HasSuffix(q.Header.Get("X-Amz-Target"), ".SendMessageBatch") {
			forward.ServeHTTP(w, q)
			return
		}
		switch count.Add(1) % n {
		case 0:
			throttled.Add(1)
			w.Header().Set("Content-Type", "application/x-amz-json-1.0")
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"__type": "com.amazonaws.sqs#RequestThrottled", "message": "Rate exceeded"}`)
		case n / 2:
			throttled.Add(1)
			throttleFirst(w, q, forward)
		default:
			forward.ServeHTTP(w, q)
		}
	}))
	t.Cleanup(server.Close)
	return server.Listener.Addr().String(), throttled
}

// throttleFirst hands on all entries but the first, and says that this one is throttled.
func throttleFirst(w http.ResponseWriter, q *http.Request, forward http.Handler) {
	var batch struct {
		QueueURL string            `json:"QueueUrl"`
		Entries  []json.RawMessage `json:"Entries"`
	}
	body, err := io.ReadAll(q.Body)
	if err == nil {
		err = json.Unmarshal(body, &batch)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	var first struct{ ID string }
	_ = json.Unmarshal(batch.Entries[0], &first)
	failed := map[string]any{
		"Id": first.ID, "Code": "ThrottlingException", "Message": "Rate exceeded", "SenderFault": true,
	}
	answer := map[string]any{"Successful": []any{}}
	if batch.Entries = batch.Entries[1:]; len(batch.Entries) > 0 {
		rest, _ := json.Marshal(batch)
		q.Body, q.ContentLength = io.NopCloser(bytes.NewReader(rest)), int64(len(rest))
		r := httptest.NewRecorder()
		forward.ServeHTTP(r, q)
		if r.Code != http.StatusOK || json.Unmarshal(r.Body.Bytes(), &answer) != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
	}
	answer["Failed"] = []any{failed}
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	_ = json.NewEncoder(w).Encode(answer)
}

// The relay is killed, connections are cut and requests throttled. Breaks it catches: an event lost, doubled or out of
// order between Postgres and a FIFO queue.
func TestSQSHasEachEventOnceInOrder(t *testing.T) {
	harness.Full(t)
	if harness.Count(t, "services of AWS") == 0 {
		t.Skip("at night")
	}
	queues := startSQS(t)
	addr, throttled := moody(t, queues.server.URL, 40)
	proxy := cutproxy.StartPlain(t, addr)
	judge(t, scenario{
		settings: append(forSQS("http://"+proxy.Addr), "limits.max_unrecorded", 150, "sqs.timeout", "5s"),
		begin:    func(topic string) { queues.make(t, topic) },
		proxy:    proxy,
		restart:  func() {}, // its queues are in its memory
		read:     func(topic string) []message { return queues.read(t, topic) },
	})
	if throttled.Load() == 0 {
		t.Error("nothing was throttled")
	}
	t.Logf("%d requests or entries were throttled", throttled.Load())
}

// Breaks it catches: an event lost, doubled or out of order when a frozen relay wakes up behind another that took over.
func TestSQSOfAFrozenRelay(t *testing.T) {
	if harness.Count(t, "services of AWS") == 0 {
		t.Skip("at night")
	}
	if harness.Count(t, "frozen relays") == 0 {
		t.Skip("runs at night")
	}
	queues := startSQS(t)
	judgeFrozen(t, scenario{
		settings: append(forSQS(queues.server.URL), "limits.max_unrecorded", 150),
		begin:    func(topic string) { queues.make(t, topic) },
		read:     func(topic string) []message { return queues.read(t, topic) },
	})
}

// One queue is missing at first, and one event is too large. Breaks it catches: a queue in trouble that holds up
// another; parked events that come out of order, or not; a dead letter that cannot be sent again.
func TestSQSParksRefusesAndReplays(t *testing.T) {
	harness.Full(t)
	if harness.Count(t, "services of AWS") == 0 {
		t.Skip("at night")
	}
	queues := startSQS(t)
	judgeTrouble(t, troubled{
		settings: forSQS(queues.server.URL),
		begin:    func(order, _ string) { queues.make(t, order) },
		mend:     func(invoice string) { queues.make(t, invoice) },
		read:     func(topic string) []message { return queues.read(t, topic) },
	})
}
