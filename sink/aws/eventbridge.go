package aws

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	client "github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge/types"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/sink"
)

const (
	// recheck is how often a bus is looked for again.
	recheck = 15 * time.Second
	// timeBytes is the size of an event's time as EventBridge counts it (User Guide, "Calculating PutEvents event entry
	// size").
	timeBytes = 14

	maxBusName    = 256
	maxSource     = 256
	maxDetailType = 128

	// noType is the detail-type of events without a type: EventBridge takes no empty one.
	noType = "event"
)

// EventBridgeConfig says where the buses are. Region, endpoint and account are empty where AWS's environment and files
// say it.
type EventBridgeConfig struct {
	Region   string
	Endpoint string // URL instead of the service's own
	Account  string // number of the account that owns the buses
	Create   bool   // missing buses
	// Source and DetailType are templates: {key} is the record's key, another name in braces the header's value.
	Source, DetailType string
	MaxBytes           int           // of an event, and of a request; 0: 256 KiB
	Requests           int           // to a bus at a time; 0: 16
	Timeout            time.Duration // of one request; 0: 10 s
	Headers            [4]string     // names of the headers for id, event type, aggregate type, created_at
	Created            func(bus string)
}

// NewEventBridge makes a driver for buses of Amazon EventBridge, which connects when there is something to send.
func NewEventBridge(ctx context.Context, c EventBridgeConfig) (*Driver, error) {
	if c.MaxBytes <= 0 {
		c.MaxBytes = defaultMaxBytes
	}
	login, err := openLogin(ctx, account{Region: c.Region, Endpoint: c.Endpoint, Number: c.Account,
		Section: "eventbridge", Requests: c.Requests})
	if err != nil {
		return nil, err
	}
	b := &buses{config: c, login: login, client: client.NewFromConfig(login.Config(), func(o *client.Options) {
		o.BaseEndpoint = login.Endpoint()
	})}
	return newDriver(login, b, options{
		MaxBytes: c.MaxBytes, Requests: c.Requests, Timeout: c.Timeout, Create: c.Create, Created: c.Created,
		Advice: b.advice, IDHeader: c.Headers[0], Recheck: recheck,
	}), nil
}

// buses is EventBridge, as [service].
type buses struct {
	config EventBridgeConfig
	login  *login
	client *client.Client
}

// Place implements [service].
func (b *buses) Place(topic string) string { return "EventBridge bus " + topic }

// Deduplicates implements [service].
func (b *buses) Deduplicates(string) bool { return false }

func (b *buses) arn(account, topic string) string {
	return fmt.Sprintf("arn:%s:events:%s:%s:event-bus/%s", b.login.Partition(), b.login.Region(), account, topic)
}

// Grant implements [service].
func (b *buses) Grant(topic string) string {
	actions := `"events:DescribeEventBus", "events:PutEvents"`
	if b.config.Create {
		actions += `, "events:CreateEventBus"`
	}
	return fmt.Sprintf(`{"Effect": "Allow", "Action": [%s], "Resource": %q}`, actions, b.arn(b.login.Known(), topic))
}

func (b *buses) advice(topic string) string {
	return fmt.Sprintf("its events wait. Stop the relay, create the bus (aws events create-event-bus --name %s --region "+
		"%s) and its rules, and start the relay: EventBridge drops what comes before a rule. Or look at eventbridge.region "+
		"and eventbridge.account, or set eventbridge.create_buses.enabled", topic, b.login.Region())
}

// Find implements [service]. The address of a bus in another account is its ARN.
func (b *buses) Find(ctx context.Context, topic string) (bus string, err error) {
	bus = topic
	if b.config.Account != "" {
		bus = b.arn(b.config.Account, topic)
	}
	_, err = b.client.DescribeEventBus(ctx, &client.DescribeEventBusInput{Name: &bus})
	return bus, err
}

// Create implements [service].
func (b *buses) Create(ctx context.Context, topic string) error {
	_, err := b.client.CreateEventBus(ctx, &client.CreateEventBusInput{Name: &topic})
	return err
}

// Judge implements [service].
func (b *buses) Judge(r *sink.Record) *sink.Reason {
	if reason := tooLong("bus", r.Topic, maxBusName); reason != nil {
		return reason
	}
	for _, part := range []struct {
		name, text string
		most       int
	}{{"source", b.fill(b.config.Source, r), maxSource}, {"detail-type", b.detailType(r), maxDetailType}} {
		if len(part.text) > part.most || !isText([]byte(part.text)) || part.text == "" {
			return &sink.Reason{Class: outbox.Permanent, Code: "INVALID_EVENT_PATTERN", Text: fmt.Sprintf(
				"eventbridge.%s makes %.150q (%d bytes) of the event, which EventBridge does not take as its %s: 1 to %d "+
					"characters of text", strings.ReplaceAll(part.name, "-", "_"), part.text, len(part.text), part.name, part.most)}
		}
	}
	return nil
}

// fill fills in a template.
func (b *buses) fill(template string, r *sink.Record) string {
	var text strings.Builder
	for {
		literal, after, found := strings.Cut(template, "{")
		text.WriteString(literal)
		if !found {
			return text.String()
		}
		name, behind, _ := strings.Cut(after, "}")
		if name == "key" {
			text.Write(r.Key)
		} else if value, there := r.Headers.Get(name); there {
			text.Write(value)
		}
		template = behind
	}
}

func (b *buses) detailType(r *sink.Record) string {
	if text := b.fill(b.config.DetailType, r); text != "" {
		return text
	}
	return noType
}

// detail is the record as the detail of an event: {"metadata": {headers and key}, "data": value}. A value that is not
// JSON is a string, or data_base64 where it is not text either.
func detail(r *sink.Record) string {
	data := "null"
	name := "data"
	switch {
	case r.Value == nil:
	case json.Valid(r.Value):
		data = string(r.Value)
	case isText(r.Value):
		quoted, _ := json.Marshal(string(r.Value)) // of a string
		data = string(quoted)
	default:
		name, data = "data_base64", `"`+base64.StdEncoding.EncodeToString(r.Value)+`"`
	}
	return `{"metadata":` + headersOf(r) + `,"` + name + `":` + data + `}`
}

// Size implements [service].
func (b *buses) Size(r *sink.Record) int {
	return timeBytes + len(b.fill(b.config.Source, r)) + len(b.detailType(r)) + len(detail(r))
}

var traceparent = regexp.MustCompile(`^[0-9a-f]{2}-([0-9a-f]{8})([0-9a-f]{24})-([0-9a-f]{16})-([0-9a-f]{2})`)

// trace is the record's W3C trace context as X-Ray has it; nil: it has none.
func trace(r *sink.Record) *string {
	value, _ := r.Headers.Get("traceparent")
	parts := traceparent.FindSubmatch(value)
	if parts == nil {
		return nil
	}
	sampled := "0"
	if last := parts[4][1]; strings.IndexByte("13579bdf", last) >= 0 {
		sampled = "1"
	}
	return sdk.String(fmt.Sprintf("Root=1-%s-%s;Parent=%s;Sampled=%s", parts[1], parts[2], parts[3], sampled))
}

// Send implements [service]. The answer has an entry for each of the request, in its order.
func (b *buses) Send(ctx context.Context, bus string, records []*sink.Record) (failed []error, err error) {
	input := &client.PutEventsInput{Entries: make([]types.PutEventsRequestEntry, len(records))}
	for i, r := range records {
		input.Entries[i] = types.PutEventsRequestEntry{EventBusName: &bus, Source: sdk.String(b.fill(b.config.Source, r)),
			DetailType: sdk.String(b.detailType(r)), Detail: sdk.String(detail(r)), TraceHeader: trace(r),
			Time: sdk.Time(time.UnixMilli(r.Timestamp))}
	}
	answer, err := b.client.PutEvents(ctx, input)
	switch {
	case err != nil:
		return nil, err
	case len(answer.Entries) != len(records):
		return nil, fmt.Errorf("the answer has %d entries for %d: %w", len(answer.Entries), len(records), errCount)
	}
	failed = make([]error, len(records))
	for i, e := range answer.Entries {
		if e.ErrorCode != nil {
			failed[i] = &entryError{Code: *e.ErrorCode, Message: sdk.ToString(e.ErrorMessage)}
		}
	}
	return failed, nil
}

var errCount = errors.New("what became of the events is not known")

// Examine implements [service]. Nothing that could be risky is asked for: rules need a right of their own.
func (b *buses) Examine(ctx context.Context, d *Driver, topic string) (text string, risky bool, err error) {
	region := b.login.Region()
	if topic == "" {
		err := d.ask(ctx, "", func(context.Context) error { return nil })
		return "there are credentials for " + region + "; buses are looked for when events name them", false, err
	}
	if _, err := d.look(ctx, topic); err != nil {
		return "", false, err
	}
	return b.Place(topic) + " in " + region + " is there; what no rule of it matches is lost", false, nil
}

// Word implements [service].
func (*buses) Word() string { return "event bus" }
