package sqs

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	client "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/cdc-relay/cdc-relay/internal/aws"
	"github.com/cdc-relay/cdc-relay/sink"
)

// DefaultMaxBytes is the most bytes of a message of a queue that is as SQS made them before 2025: 256 KiB. Newer queues
// take 1 MiB.
const DefaultMaxBytes = 256 << 10

// maxName is the most characters of a queue's name.
const maxName = 80

// Config says where the queues are. Region, endpoint and account are empty where AWS's environment and files say it.
type Config struct {
	Region   string
	Endpoint string // URL instead of the service's own
	Account  string // number of the account that owns the queues
	// Standard allows standard queues: a topic is one unless it ends in .fifo.
	Standard bool
	Create   bool          // missing queues
	MaxBytes int           // of a message with its attributes, and of a request
	Requests int           // to a queue at a time
	Timeout  time.Duration // of one request
	Headers  [4]string     // names of the headers for id, event type, aggregate type, created_at
	Created  func(queue string)
}

// Driver sends to queues. Make it with New.
type Driver struct {
	*aws.Driver
	queues *queues
	login  *aws.Login
}

var _ sink.Driver = (*Driver)(nil)

// New makes a driver, which connects when there is something to send.
func New(ctx context.Context, c Config) (*Driver, error) {
	if c.MaxBytes <= 0 {
		c.MaxBytes = DefaultMaxBytes
	}
	login, err := aws.Open(ctx, aws.Account{Region: c.Region, Endpoint: c.Endpoint, Number: c.Account, Section: "sqs",
		Requests: c.Requests})
	if err != nil {
		return nil, err
	}
	q := &queues{config: c, login: login, client: client.NewFromConfig(login.Config(), func(o *client.Options) {
		o.BaseEndpoint = login.Endpoint()
		// A message that is recognized as a duplicate may be answered with the checksum of the first one.
		o.DisableMessageChecksumValidation = true
	})}
	return &Driver{queues: q, login: login, Driver: aws.New(login, q, aws.Config{
		MaxBytes: c.MaxBytes, Requests: c.Requests, Timeout: c.Timeout, Create: c.Create, Created: c.Created,
		Advice: q.advice, IDHeader: c.Headers[0],
	})}, nil
}

// queues is SQS, as [aws.Service].
type queues struct {
	config Config
	login  *aws.Login
	client *client.Client
}

func (q *queues) name(topic string) (name string, fifo bool) {
	return aws.Name(topic, q.config.Standard)
}

// Place implements [aws.Service].
func (q *queues) Place(topic string) string {
	name, _ := q.name(topic)
	return "SQS queue " + name
}

// Deduplicates implements [aws.Service].
func (q *queues) Deduplicates(topic string) bool {
	_, fifo := q.name(topic)
	return fifo
}

// Grant implements [aws.Service].
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

// Find implements [aws.Service].
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

// Create implements [aws.Service]. A FIFO queue is made for high throughput, which is by group.
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

// Judge implements [aws.Service].
func (q *queues) Judge(r *sink.Record) *sink.Reason {
	name, _ := q.name(r.Topic)
	return aws.TooLong("queue", name, maxName)
}

// Size implements [aws.Service]: SQS counts body and attributes.
func (q *queues) Size(r *sink.Record) int { return aws.MessageOf(r, q.config.Headers).Size() }

// Send implements [aws.Service].
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
	fates := aws.NewFates(len(records))
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
	m := aws.MessageOf(r, q.config.Headers)
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
		e.MessageGroupId = sdk.String(aws.Group(r, q.config.Headers[0]))
		e.MessageDeduplicationId = sdk.String(aws.Deduplication(r, q.config.Headers[0]))
	}
	return e
}

// Examine looks for the queue of the topic, the only one that there is, or for credentials alone if it is empty. Risky
// says that something about the queue is not as it should be.
func (d *Driver) Examine(ctx context.Context, topic string) (text string, risky bool, err error) {
	if topic == "" {
		caller := ""
		err := d.Ask(ctx, "", func(ctx context.Context) (err error) {
			if d.login.Endpoint() == nil {
				caller, err = d.login.Caller(ctx)
			}
			return err
		})
		text = caller + " in " + d.login.Region() + "; queues are looked for when events name them"
		return strings.TrimSpace(text), false, err
	}
	url, err := d.Look(ctx, topic)
	if err != nil {
		return "", false, err
	}
	var found map[string]string
	err = d.Ask(ctx, topic, func(ctx context.Context) error {
		answer, err := d.queues.client.GetQueueAttributes(ctx, &client.GetQueueAttributesInput{QueueUrl: &url,
			AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameAll}})
		if err == nil {
			found = answer.Attributes
		}
		return err
	})
	if err != nil {
		return "", false, err
	}
	text, risky = d.queues.describe(topic, found)
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

// Word returns the broker's word for a topic.
func (*Driver) Word() string { return "queue" }
