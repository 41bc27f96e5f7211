package aws

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	client "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/cdc-relay/cdc-relay/sink"
)

// maxQueueName is the most characters of a queue's name.
const maxQueueName = 80

// SQSConfig says where the queues are. Region, endpoint and account are empty where AWS's environment and files say it.
type SQSConfig struct {
	Region   string
	Endpoint string // URL instead of the service's own
	Account  string // number of the account that owns the queues
	// Standard allows standard queues: a topic is one unless it ends in .fifo.
	Standard bool
	Create   bool          // missing queues
	MaxBytes int           // of a message with its attributes, and of a request; 0: 256 KiB
	Requests int           // to a queue at a time; 0: 16
	Timeout  time.Duration // of one request; 0: 10 s
	Headers  [4]string     // names of the headers for id, event type, aggregate type, created_at
	Created  func(queue string)
}

// NewSQS makes a driver for queues of Amazon SQS, which connects when there is something to send.
func NewSQS(ctx context.Context, c SQSConfig) (*Driver, error) {
	if c.MaxBytes <= 0 {
		c.MaxBytes = defaultMaxBytes
	}
	login, err := openLogin(ctx, account{Region: c.Region, Endpoint: c.Endpoint, Number: c.Account, Section: "sqs",
		Requests: c.Requests})
	if err != nil {
		return nil, err
	}
	q := &queues{config: c, login: login, client: client.NewFromConfig(login.Config(), func(o *client.Options) {
		o.BaseEndpoint = login.Endpoint()
		// A message that is recognized as a duplicate may be answered with the checksum of the first one.
		o.DisableMessageChecksumValidation = true
	})}
	return newDriver(login, q, options{
		MaxBytes: c.MaxBytes, Requests: c.Requests, Timeout: c.Timeout, Create: c.Create, Created: c.Created,
		Advice: q.advice, IDHeader: c.Headers[0],
	}), nil
}

// queues is SQS, as [service].
type queues struct {
	config SQSConfig
	login  *login
	client *client.Client
}

func (q *queues) name(topic string) (name string, fifo bool) {
	return nameOf(topic, q.config.Standard)
}

// Place implements [service].
func (q *queues) Place(topic string) string {
	name, _ := q.name(topic)
	return "SQS queue " + name
}

// Deduplicates implements [service].
func (q *queues) Deduplicates(topic string) bool {
	_, fifo := q.name(topic)
	return fifo
}

// Grant implements [service].
func (q *queues) Grant(topic string) string {
	name, _ := q.name(topic)
	actions := `"sqs:GetQueueUrl", "sqs:GetQueueAttributes", "sqs:SendMessage"`
	if q.config.Create {
		actions += `, "sqs:CreateQueue"`
	}
	return fmt.Sprintf(`{"Effect": "Allow", "Action": [%s], "Resource": "arn:%s:sqs:%s:%s:%s"}`, actions,
		q.login.Partition(), q.login.Region(), q.login.Known(), name)
}

func (q *queues) advice(topic string) string {
	name, fifo := q.name(topic)
	attributes := ""
	if fifo {
		attributes = " --attributes FifoQueue=true,DeduplicationScope=messageGroup,FifoThroughputLimit=perMessageGroupId"
	}
	return fmt.Sprintf("create it (aws sqs create-queue --queue-name %s%s --region %s), set sqs.create_queues.enabled, "+
		"or look at sqs.region and sqs.account: its events wait", name, attributes, q.login.Region())
}

// Find implements [service].
func (q *queues) Find(ctx context.Context, topic string) (url string, err error) {
	name, _ := q.name(topic)
	question := &client.GetQueueUrlInput{QueueName: &name}
	if q.config.Account != "" {
		question.QueueOwnerAWSAccountId = &q.config.Account
	}
	answer, err := q.client.GetQueueUrl(ctx, question)
	if err != nil {
		return "", err
	}
	return sdk.ToString(answer.QueueUrl), nil
}

// Create implements [service]. A FIFO queue is made for high throughput, which is by group.
func (q *queues) Create(ctx context.Context, topic string) error {
	name, fifo := q.name(topic)
	attributes := map[string]string{}
	if fifo {
		attributes["FifoQueue"] = "true"
		attributes["DeduplicationScope"] = "messageGroup"
		attributes["FifoThroughputLimit"] = "perMessageGroupId"
	}
	_, err := q.client.CreateQueue(ctx, &client.CreateQueueInput{QueueName: &name, Attributes: attributes})
	return err
}

// Judge implements [service].
func (q *queues) Judge(r *sink.Record) *sink.Reason {
	name, _ := q.name(r.Topic)
	return tooLong("queue", name, maxQueueName)
}

// Size implements [service]: SQS counts body and attributes.
func (q *queues) Size(r *sink.Record) int { return messageOf(r, q.config.Headers).Size() }

// Send implements [service].
func (q *queues) Send(ctx context.Context, url string, records []*sink.Record) (failed []error, err error) {
	entries := make([]types.SendMessageBatchRequestEntry, len(records))
	input := &client.SendMessageBatchInput{QueueUrl: &url, Entries: entries}
	for i, r := range records {
		input.Entries[i] = q.entry(r, strconv.Itoa(i))
	}
	answer, err := q.client.SendMessageBatch(ctx, input)
	if err != nil {
		return nil, err
	}
	fates := newFates(len(records))
	for _, taken := range answer.Successful {
		fates.Taken(taken.Id)
	}
	for _, f := range answer.Failed {
		fates.Failed(f.Id, f.Code, f.Message)
	}
	return fates, nil
}

// entry is the record as an entry of a batch.
func (q *queues) entry(r *sink.Record, id string) types.SendMessageBatchRequestEntry {
	m := messageOf(r, q.config.Headers)
	e := types.SendMessageBatchRequestEntry{Id: &id, MessageBody: &m.Body,
		MessageAttributes: make(map[string]types.MessageAttributeValue, len(m.Attributes))}
	for _, a := range m.Attributes {
		value := types.MessageAttributeValue{DataType: sdk.String("String"), StringValue: &a.Text}
		if a.Bytes != nil {
			value = types.MessageAttributeValue{DataType: sdk.String("Binary"), BinaryValue: a.Bytes}
		}
		e.MessageAttributes[a.Name] = value
	}
	if _, fifo := q.name(r.Topic); fifo {
		e.MessageGroupId = sdk.String(groupOf(r, q.config.Headers[0]))
		e.MessageDeduplicationId = sdk.String(deduplicationOf(r, q.config.Headers[0]))
	}
	return e
}

// Examine implements [service].
func (q *queues) Examine(ctx context.Context, d *Driver, topic string) (text string, risky bool, err error) {
	if topic == "" {
		caller := ""
		err := d.ask(ctx, "", func(ctx context.Context) (err error) {
			if q.login.Endpoint() == nil {
				caller, err = q.login.Caller(ctx)
			}
			return err
		})
		text = caller + " in " + q.login.Region() + "; queues are looked for when events name them"
		return strings.TrimSpace(text), false, err
	}
	url, err := d.look(ctx, topic)
	if err != nil {
		return "", false, err
	}
	var found map[string]string
	err = d.ask(ctx, topic, func(ctx context.Context) error {
		answer, err := q.client.GetQueueAttributes(ctx, &client.GetQueueAttributesInput{QueueUrl: &url,
			AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameAll}})
		if err == nil {
			found = answer.Attributes
		}
		return err
	})
	if err != nil {
		return "", false, err
	}
	text, risky = q.describe(topic, found)
	return text, risky, nil
}

// describe says what is known of a queue, and what about it is a risk.
func (q *queues) describe(topic string, found map[string]string) (text string, risky bool) {
	text = q.Place(topic) + " in " + q.login.Region() + " is there"
	if _, fifo := q.name(topic); !fifo {
		text += "; it is a standard queue: messages come in any order, and some twice"
	} else if found["FifoThroughputLimit"] != "perMessageGroupId" {
		text += "; it is not set to high throughput, so it takes 300 requests a second"
	}
	if most, err := strconv.Atoi(found["MaximumMessageSize"]); err == nil && most < q.config.MaxBytes {
		text += fmt.Sprintf("; it takes messages of %d bytes, sqs.max_message_bytes is %d: larger events are refused by SQS "+
			"and not before they are sent", most, q.config.MaxBytes)
		risky = true
	}
	if found["RedrivePolicy"] == "" {
		text += "; it has no dead-letter queue for what its consumers cannot handle"
	}
	return text, risky
}

// Word implements [service].
func (*queues) Word() string { return "queue" }
