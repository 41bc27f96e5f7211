package aws

import (
	"context"
	"fmt"
	"strconv"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	client "github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/sns/types"

	"github.com/cdc-relay/cdc-relay/sink"
)

const (
	// maxTopicBytes is the most bytes of a message and of a request (SNS API Reference, PublishBatch).
	maxTopicBytes = 256 << 10
	// maxTopicName is the most characters of a topic's name.
	maxTopicName = 256
)

// SNSConfig says where the topics are. Region, endpoint and account are empty where AWS's environment and files say it.
type SNSConfig struct {
	Region   string
	Endpoint string // URL instead of the service's own
	Account  string // number of the account that owns the topics
	// Standard allows standard topics: a topic is one unless it ends in .fifo.
	Standard bool
	Create   bool          // missing topics
	Requests int           // to a topic at a time; 0: 16
	Timeout  time.Duration // of one request; 0: 10 s
	Headers  [4]string     // names of the headers for id, event type, aggregate type, created_at
	Created  func(topic string)
}

// NewSNS makes a driver for topics of Amazon SNS, which connects when there is something to send.
func NewSNS(ctx context.Context, c SNSConfig) (*Driver, error) {
	login, err := openLogin(ctx, account{Region: c.Region, Endpoint: c.Endpoint, Number: c.Account, Section: "sns",
		Requests: c.Requests})
	if err != nil {
		return nil, err
	}
	t := &topics{config: c, login: login, client: client.NewFromConfig(login.Config(), func(o *client.Options) {
		o.BaseEndpoint = login.Endpoint()
	})}
	return newDriver(login, t, options{
		MaxBytes: maxTopicBytes, Requests: c.Requests, Timeout: c.Timeout, Create: c.Create, Created: c.Created,
		Advice: t.advice, IDHeader: c.Headers[0],
	}), nil
}

// topics is SNS, as [service].
type topics struct {
	config SNSConfig
	login  *login
	client *client.Client
}

func (t *topics) name(topic string) (name string, fifo bool) {
	return nameOf(topic, t.config.Standard)
}

func (t *topics) arn(account, topic string) string {
	name, _ := t.name(topic)
	return fmt.Sprintf("arn:%s:sns:%s:%s:%s", t.login.Partition(), t.login.Region(), account, name)
}

// Place implements [service].
func (t *topics) Place(topic string) string {
	name, _ := t.name(topic)
	return "SNS topic " + name
}

// Deduplicates implements [service].
func (t *topics) Deduplicates(topic string) bool {
	_, fifo := t.name(topic)
	return fifo
}

// Grant implements [service].
func (t *topics) Grant(topic string) string {
	actions := `"sns:GetTopicAttributes", "sns:Publish"`
	if t.config.Create {
		actions += `, "sns:CreateTopic"`
	}
	return fmt.Sprintf(`{"Effect": "Allow", "Action": [%s], "Resource": %q}`, actions, t.arn(t.login.Known(), topic))
}

func (t *topics) advice(topic string) string {
	name, fifo := t.name(topic)
	attributes := ""
	if fifo {
		attributes = " --attributes FifoTopic=true,ContentBasedDeduplication=false"
	}
	return fmt.Sprintf("its events wait. Stop the relay, create the topic (aws sns create-topic --name %s%s --region "+
		"%s), subscribe to it, and start the relay: SNS drops what comes before a subscription. Or look at sns.region and "+
		"sns.account, or set sns.create_topics.enabled", name, attributes, t.login.Region())
}

// Find implements [service].
func (t *topics) Find(ctx context.Context, topic string) (arn string, err error) {
	arn, _, err = t.look(ctx, topic)
	return arn, err
}

func (t *topics) look(ctx context.Context, topic string) (arn string, found map[string]string, err error) {
	account, err := t.login.Number(ctx)
	if err != nil {
		return "", nil, err
	}
	arn = t.arn(account, topic)
	answer, err := t.client.GetTopicAttributes(ctx, &client.GetTopicAttributesInput{TopicArn: &arn})
	if err != nil {
		return "", nil, err
	}
	return arn, answer.Attributes, nil
}

// Create implements [service].
func (t *topics) Create(ctx context.Context, topic string) error {
	name, fifo := t.name(topic)
	attributes := map[string]string{}
	if fifo {
		attributes["FifoTopic"] = "true"
		attributes["ContentBasedDeduplication"] = "false"
	}
	_, err := t.client.CreateTopic(ctx, &client.CreateTopicInput{Name: &name, Attributes: attributes})
	return err
}

// Judge implements [service].
func (t *topics) Judge(r *sink.Record) *sink.Reason {
	name, _ := t.name(r.Topic)
	return tooLong("topic", name, maxTopicName)
}

// Size implements [service]: SNS counts message and attributes.
func (t *topics) Size(r *sink.Record) int { return messageOf(r, t.config.Headers).Size() }

// Send implements [service].
func (t *topics) Send(ctx context.Context, arn string, records []*sink.Record) (failed []error, err error) {
	input := &client.PublishBatchInput{TopicArn: &arn,
		PublishBatchRequestEntries: make([]types.PublishBatchRequestEntry, len(records))}
	for i, r := range records {
		input.PublishBatchRequestEntries[i] = t.entry(r, strconv.Itoa(i))
	}
	answer, err := t.client.PublishBatch(ctx, input)
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
func (t *topics) entry(r *sink.Record, id string) types.PublishBatchRequestEntry {
	m := messageOf(r, t.config.Headers)
	e := types.PublishBatchRequestEntry{Id: &id, Message: &m.Body,
		MessageAttributes: make(map[string]types.MessageAttributeValue, len(m.Attributes))}
	for _, a := range m.Attributes {
		value := types.MessageAttributeValue{DataType: sdk.String("String"), StringValue: &a.Text}
		if a.Bytes != nil {
			value = types.MessageAttributeValue{DataType: sdk.String("Binary"), BinaryValue: a.Bytes}
		}
		e.MessageAttributes[a.Name] = value
	}
	if _, fifo := t.name(r.Topic); fifo {
		e.MessageGroupId = sdk.String(groupOf(r, t.config.Headers[0]))
		e.MessageDeduplicationId = sdk.String(deduplicationOf(r, t.config.Headers[0]))
	}
	return e
}

// Examine implements [service]. A topic without a subscription is risky.
func (t *topics) Examine(ctx context.Context, d *Driver, topic string) (text string, risky bool, err error) {
	if topic == "" {
		account := ""
		err := d.ask(ctx, "", func(ctx context.Context) (err error) {
			account, err = t.login.Number(ctx)
			return err
		})
		return fmt.Sprintf("account %s in %s; topics are looked for when events name them", account, t.login.Region()), false,
			err
	}
	var found map[string]string
	err = d.ask(ctx, topic, func(ctx context.Context) (err error) {
		_, found, err = t.look(ctx, topic)
		return err
	})
	if err != nil {
		return "", false, err
	}
	text, risky = t.describe(topic, found)
	return text, risky, nil
}

// describe says what is known of a topic, and what about it is a risk.
func (t *topics) describe(topic string, found map[string]string) (text string, risky bool) {
	text = t.Place(topic) + " in " + t.login.Region() + " is there"
	if _, fifo := t.name(topic); !fifo {
		text += "; it is a standard topic: messages come in any order, and some twice"
	}
	switch n := found["SubscriptionsConfirmed"]; n {
	case "":
		return text + "; how many have subscribed to it is not known", false
	case "0":
		return text + "; no one has subscribed to it, and what is published to it now is lost: SNS keeps nothing", true
	default:
		return text + "; subscriptions: " + n, false
	}
}

// Word implements [service].
func (*topics) Word() string { return "topic" }
