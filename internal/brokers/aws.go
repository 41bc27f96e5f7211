package brokers

import (
	"context"

	"github.com/rs/zerolog"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/sink/aws"
)

// SQS makes the driver for queues of Amazon SQS.
func SQS(cfg config.Config, log zerolog.Logger) (*aws.Driver, error) {
	q := cfg.SQS
	return aws.NewSQS(context.Background(), aws.SQSConfig{
		Region: q.Region, Endpoint: q.Endpoint, Account: q.Account, Standard: q.Standard, Create: q.CreateQueues.Enabled,
		MaxBytes: int(q.MaxMessageBytes), Requests: q.Requests, Timeout: q.Timeout.Std(), Headers: cfg.Message.HeaderNames(),
		Created: created(log),
	})
}

// SNS makes the driver for topics of Amazon SNS.
func SNS(cfg config.Config, log zerolog.Logger) (*aws.Driver, error) {
	n := cfg.SNS
	return aws.NewSNS(context.Background(), aws.SNSConfig{
		Region: n.Region, Endpoint: n.Endpoint, Account: n.Account, Standard: n.Standard, Create: n.CreateTopics.Enabled,
		Requests: n.Requests, Timeout: n.Timeout.Std(), Headers: cfg.Message.HeaderNames(), Created: created(log),
	})
}

// EventBridge makes the driver for buses of Amazon EventBridge.
func EventBridge(cfg config.Config, log zerolog.Logger) (*aws.Driver, error) {
	e := cfg.EventBridge
	named := headersFor(cfg)
	return aws.NewEventBridge(context.Background(), aws.EventBridgeConfig{
		Region: e.Region, Endpoint: e.Endpoint, Account: e.Account, Create: e.CreateBuses.Enabled,
		Source: named.Replace(e.Source), DetailType: named.Replace(e.DetailType), MaxBytes: int(e.MaxEventBytes),
		Requests: e.Requests, Timeout: e.Timeout.Std(), Headers: cfg.Message.HeaderNames(), Created: created(log),
	})
}

// created logs what a driver has made at AWS.
func created(log zerolog.Logger) func(string) {
	return func(place string) { log.Info().Str("place", place).Msg("created at AWS, as it was missing") }
}
