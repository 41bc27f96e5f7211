package aws_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/sink/aws"
	"github.com/cdc-relay/cdc-relay/test/harness"
	"github.com/cdc-relay/cdc-relay/test/sinktest"
)

// entry is one of a request, as SQS gets it.
type entry struct {
	ID            string `json:"Id"`
	Group         string `json:"MessageGroupId"`
	Deduplication string `json:"MessageDeduplicationId"`
	Body          string `json:"MessageBody"`
}

// answers is a server that speaks so much of SQS's protocol as a driver needs, and answers as the test says.
type answers struct {
	*httptest.Server
	answer func(request int, entries []entry) (status int, body any) // nil body: all entries are taken

	mu       sync.Mutex // guards what follows
	requests int
	taken    []entry
}

func newAnswers(t *testing.T, answer func(request int, entries []entry) (int, any)) *answers {
	t.Helper()
	harness.AWSLogin(t)
	a := &answers{answer: answer}
	a.Server = httptest.NewServer(http.HandlerFunc(a.serve))
	t.Cleanup(a.Close)
	return a
}

func (a *answers) serve(w http.ResponseWriter, q *http.Request) {
	body, _ := io.ReadAll(q.Body)
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	if strings.HasSuffix(q.Header.Get("X-Amz-Target"), ".GetQueueUrl") {
		_, _ = fmt.Fprintf(w, `{"QueueUrl": "%s/1/q.fifo"}`, a.URL)
		return
	}
	var batch struct{ Entries []entry }
	_ = json.Unmarshal(body, &batch)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.requests++
	status, said := a.answer(a.requests, batch.Entries)
	if said != nil {
		if f, is := said.(map[string]any); is && status == http.StatusOK {
			a.note(batch.Entries, f)
		}
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(said)
		return
	}
	all := map[string]any{}
	a.note(batch.Entries, all)
	_ = json.NewEncoder(w).Encode(all)
}

// note takes what the answer does not call failed, and completes the answer.
func (a *answers) note(entries []entry, answer map[string]any) {
	failed := map[string]bool{}
	list, _ := answer["Failed"].([]any)
	for _, f := range list {
		failed[f.(map[string]any)["Id"].(string)] = true
	}
	successful := []any{}
	for _, e := range entries {
		if !failed[e.ID] {
			a.taken = append(a.taken, e)
			successful = append(successful, map[string]any{"Id": e.ID, "MessageId": "m", "MD5OfMessageBody": "x"})
		}
	}
	answer["Successful"] = successful
}

func (a *answers) bodies() (found []sinktest.Message) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range a.taken {
		found = append(found, sinktest.Message{Key: []byte(e.Group), Value: []byte(e.Body)})
	}
	return found
}

func failed(id, code string, fault bool) map[string]any {
	return map[string]any{"Failed": []any{
		map[string]any{"Id": id, "Code": code, "SenderFault": fault, "Message": "said so"},
	}}
}

func refusal(code, text string) map[string]any {
	return map[string]any{"__type": "com.amazonaws.sqs#" + code, "message": text}
}

func (a *answers) driver(t *testing.T, change func(*aws.SQSConfig)) *aws.Driver {
	t.Helper()
	c := aws.SQSConfig{Endpoint: a.URL, Headers: [4]string{"id", "event_type", "aggregate_type", "created_at"}}
	if change != nil {
		change(&c)
	}
	return newSQS(t, c)
}

// Breaks it catches: an entry that was throttled or failed alone, and that a later one of its key overtakes; entries
// beside it that are sent again. Standard messages have no id that would hide the latter.
func TestEntriesThatFailAloneAreSentAgainAlone(t *testing.T) {
	a := newAnswers(t, func(n int, entries []entry) (int, any) {
		switch {
		case n%3 == 1:
			return http.StatusOK, failed(entries[0].ID, "ThrottlingException", true)
		case n%7 == 2:
			return http.StatusBadRequest, refusal("RequestThrottled", "Rate exceeded")
		case n%11 == 3:
			return http.StatusOK, failed(entries[len(entries)-1].ID, "KmsThrottled", true)
		}
		return http.StatusOK, nil
	})
	d := a.driver(t, nil)
	const n = 300
	sinktest.NewFlow(t, d).Send(sinktest.Events("q", 0, n))
	if duplicates := sinktest.WantFirstsInOrder(t, a.bodies(), n); duplicates > 0 || d.PossibleDuplicates() > 0 {
		t.Errorf("got %d duplicates, %d possible; want none: what failed was not taken", duplicates, d.PossibleDuplicates())
	}
}

// Breaks it catches: an entry with an unknown outcome that gets another deduplication id, a second event of its key in
// the same request, and duplicates of standard messages that are not counted.
func TestUnknownOutcomesKeepTheirIDs(t *testing.T) {
	for _, standard := range []bool{false, true} {
		var mu sync.Mutex
		idOf, seen := map[string]string{}, 0
		a := newAnswers(t, func(n int, entries []entry) (int, any) {
			mu.Lock()
			defer mu.Unlock()
			groups := map[string]bool{}
			for _, e := range entries {
				if before, sent := idOf[e.Body]; sent && before != e.Deduplication {
					t.Errorf("event %s: got the ids %s and %s", e.Body, before, e.Deduplication)
				}
				if groups[e.Group] && e.Group != "" {
					t.Errorf("group %s is in a request twice", e.Group)
				}
				idOf[e.Body], groups[e.Group] = e.Deduplication, true
			}
			if n%5 == 2 {
				seen += len(entries)
				return http.StatusInternalServerError, refusal("InternalError", "it may be there")
			}
			return http.StatusOK, nil
		})
		d := a.driver(t, func(c *aws.SQSConfig) { c.Standard = standard })
		sinktest.NewFlow(t, d).Send(sinktest.Events("q", 0, 200))
		mu.Lock()
		if got := int(d.PossibleDuplicates()); standard && got != seen || !standard && got != 0 {
			t.Errorf("standard %t: got %d possible duplicates of %d entries with an unknown outcome", standard, got, seen)
		}
		mu.Unlock()
	}
}

// Breaks it catches: one event at fault that takes its neighbours with it, or has them sent twice, whether SQS refuses
// the entry or the whole request.
func TestAGuiltyEventHurtsNoOther(t *testing.T) {
	for _, whole := range []bool{false, true} {
		a := newAnswers(t, func(_ int, entries []entry) (int, any) {
			for _, e := range entries {
				if e.Body == "000000020" && whole {
					return http.StatusBadRequest, refusal("InvalidMessageContents", "not of this world")
				} else if e.Body == "000000020" {
					return http.StatusOK, failed(e.ID, "InvalidMessageContents", true)
				}
			}
			return http.StatusOK, nil
		})
		d := a.driver(t, func(c *aws.SQSConfig) { c.Standard = true })
		f := sinktest.NewFlow(t, d)
		records := sinktest.Events("q", 0, 100)
		for i, r := range records {
			r.Key = fmt.Appendf(nil, "key-%d", i) // no lane is held
		}
		if _, err := f.Submit(t.Context(), records); err != nil {
			t.Fatal(err)
		}
		var rejected []string
		for done := 0; done < len(records); {
			some, err := f.Results(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range some {
				if r.Result == sink.Rejected {
					rejected = append(rejected, string(r.Value)+" "+r.Reason.Code)
				}
			}
			done += len(some)
			f.Settled(some)
		}
		if got := fmt.Sprint(rejected); got != "[000000020 InvalidMessageContents]" {
			t.Errorf("whole %t: got %s rejected", whole, got)
		}
		if found := a.bodies(); len(found) != 99 {
			t.Errorf("whole %t: got %d messages, want each of the 99 others once", whole, len(found))
		}
	}
}

// An answer breaks off behind its status. Breaks it catches: entries that SQS has taken and that count as not written.
func TestEntriesOfABrokenAnswerMayHaveBeenTaken(t *testing.T) {
	a := newAnswers(t, func(int, []entry) (int, any) { return http.StatusOK, nil })
	whole := a.Config.Handler
	a.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if strings.HasSuffix(q.Header.Get("X-Amz-Target"), ".SendMessageBatch") {
			w.Header().Set("Content-Length", "10000")
		}
		whole.ServeHTTP(w, q)
	})
	d := a.driver(t, nil)
	b := &sink.Batch{Topic: "q", Records: sinktest.Events("q", 0, 5)}
	d.Produce(t.Context(), d.Node("q", 0), []*sink.Batch{b})
	if o := b.Outcome; o.Verdict != sink.Unknown || o.Trouble != sink.ClusterTrouble {
		t.Errorf("got verdict %d, trouble %d, %v; want it unknown", o.Verdict, o.Trouble, o.Err)
	}
}

// Breaks it catches: an answer taken for another's trouble, or that does not tell what to do.
func TestRefusalsNameTheirRemedy(t *testing.T) {
	for _, c := range []struct {
		code string
		kind sink.Trouble
		want string
	}{
		{"AccessDeniedException", sink.TopicTrouble,
			`"sqs:SendMessage"], "Resource": "arn:aws:sqs:us-east-1:123456789012:orders.fifo"}`},
		{"QueueDoesNotExist", sink.TopicTrouble, "aws sqs create-queue --queue-name orders.fifo --attributes FifoQueue=true"},
		{"KmsAccessDenied", sink.TopicTrouble, `"Action": ["kms:GenerateDataKey", "kms:Decrypt"]`},
		{"InvalidClientTokenId", sink.ConfigurationTrouble, "AWS_ACCESS_KEY_ID"},
		{"RequestThrottled", sink.PartitionTrouble, "Rate"},
		{"InternalError", sink.ClusterTrouble, "InternalError"},
	} {
		t.Run(c.code, func(t *testing.T) {
			a := newAnswers(t, func(int, []entry) (int, any) { return http.StatusBadRequest, refusal(c.code, "Rate or so") })
			d := a.driver(t, func(cfg *aws.SQSConfig) { cfg.Account = "123456789012" })
			b := &sink.Batch{Topic: "orders", Records: sinktest.Events("orders", 0, 5)}
			d.Produce(t.Context(), d.Node("orders", 0), []*sink.Batch{b})
			if o := b.Outcome; o.Trouble != c.kind || o.Err == nil || !strings.Contains(o.Err.Error(), c.want) {
				t.Errorf("got trouble %d, %v; want %d and %s", o.Trouble, o.Err, c.kind, c.want)
			}
			var gone sink.Gone
			// a batch without an answer goes back, too
			if got := errors.As(b.Outcome.Err, &gone); got != (c.kind == sink.TopicTrouble) {
				t.Errorf("gone: got %t", got)
			}
		})
	}
}

// Breaks it catches: a search for credentials that asks an address which never answers, and has no end; a machine
// without any that is told nothing.
func TestWithoutALoginTheErrorIsClearAndSoon(t *testing.T) {
	a := newAnswers(t, func(int, []entry) (int, any) { return http.StatusOK, nil })
	mute, err := net.Listen("tcp", "127.0.0.1:0") // takes connections, and says nothing on them
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	for name, value := range map[string]string{"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "",
		"AWS_EC2_METADATA_DISABLED": "false", "AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://" + mute.Addr().String()} {
		t.Setenv(name, value)
	}
	d := a.driver(t, nil)
	b := &sink.Batch{Topic: "q", Records: sinktest.Events("q", 0, 1)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		d.Produce(t.Context(), d.Node("q", 0), []*sink.Batch{b})
	}()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("the search for credentials has no end")
	}
	o := b.Outcome
	if o.Trouble != sink.ConfigurationTrouble || o.Verdict != sink.NotWritten ||
		!strings.Contains(o.Err.Error(), "no AWS credentials") {
		t.Errorf("got %+v, want the configuration's trouble, and where credentials are looked for", o)
	}
}

// Breaks it catches: a relay that starts without knowing the region, and fails at each event.
func TestTheRegionMustBeKnown(t *testing.T) {
	harness.AWSLogin(t)
	t.Setenv("AWS_REGION", "")
	t.Setenv("AWS_DEFAULT_REGION", "")
	if _, err := aws.NewSQS(t.Context(), aws.SQSConfig{}); err == nil || !strings.Contains(err.Error(), "sqs.region") {
		t.Errorf("got %v, want what to set", err)
	}
}
