// Gopqcdc is go-pq-cdc-kafka (Trendyol) as a relay of the outbox, for the comparison of peers. It is a module of its
// own, so that nothing else needs what it needs.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strconv"
	"time"

	cdc "github.com/Trendyol/go-pq-cdc-kafka"
	"github.com/Trendyol/go-pq-cdc-kafka/config"
	cdcconfig "github.com/Trendyol/go-pq-cdc/config"
	"github.com/Trendyol/go-pq-cdc/pq/publication"
	"github.com/Trendyol/go-pq-cdc/pq/slot"
	kafkago "github.com/segmentio/kafka-go"
)

// orders configures this process; test/peers writes it.
type orders struct {
	URL               string
	Brokers           []string
	Topic             string
	Slot, Publication string
	MetricsPort       int
}

func main() {
	err := run()
	if err == nil {
		err = errors.New("it gave up") // its Start says so in its log only
	}
	fmt.Fprintln(os.Stderr, "gopqcdc:", err)
	os.Exit(1) // a supervisor starts it again
}

func run() error {
	var o orders
	if err := json.Unmarshal([]byte(os.Getenv("PEERS_ORDERS")), &o); err != nil {
		return err
	}
	at, err := url.Parse(o.URL)
	if err != nil {
		return err
	}
	port, err := strconv.Atoi(at.Port())
	if err != nil {
		return err
	}
	ctx := context.Background()
	connector, err := cdc.NewConnector(ctx, config.Connector{
		CDC: cdcconfig.Config{
			Host: at.Hostname(), Port: port, Username: at.User.Username(), Password: "none", Database: at.Path[1:],
			Publication: publication.Config{Name: o.Publication},
			Slot:        slot.Config{Name: o.Slot, SlotActivityCheckerInterval: 1000},
			Metric:      cdcconfig.MetricConfig{Port: o.MetricsPort},
			Logger:      cdcconfig.LoggerConfig{LogLevel: slog.LevelWarn},
		},
		Kafka: config.Kafka{
			Brokers: o.Brokers, RequiredAcks: int(kafkago.RequireAll), Balancer: "Murmur2Balancer",
			TableTopicMapping:           map[string]string{"public.outbox_events": o.Topic},
			ProducerBatchTickerDuration: 10 * time.Millisecond,
		},
	}, o.message)
	if err != nil {
		return err
	}
	defer connector.Close()
	connector.Start(ctx)
	return nil
}

// message is a row as a record. The payload comes decoded from jsonb, so that it has to be written again.
func (o orders) message(m *cdc.Message) []kafkago.Message {
	if !m.Type.IsInsert() {
		return nil
	}
	value, err := json.Marshal(m.NewData["payload"])
	if err != nil {
		panic(err)
	}
	return []kafkago.Message{{
		Topic: o.Topic + text(m.NewData["aggregate_type"]), Key: []byte(text(m.NewData["aggregate_id"])), Value: value,
		Headers: []kafkago.Header{{Key: "id", Value: []byte(text(m.NewData["id"]))}},
	}}
}

func text(value any) string {
	if id, ok := value.([16]byte); ok {
		return fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
	}
	return fmt.Sprint(value)
}
