package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// RabbitMQConsumer is a consumer of RabbitMQ's exchanges: what its queue is bound with, and how long it waits between
// attempts. The queue has the consumer's name.
type RabbitMQConsumer struct {
	Bind      []string   // binding keys
	Retry     []Duration // pauses, one retry queue for each
	Exchanges []string   // empty: the one that message.topic names
	// SingleActive has the queue delivered to one process at a time, which keeps the order of keys.
	SingleActive bool
}

// The names of RabbitMQConsumer's fields in the file.
const (
	consumerBind      = "bind"
	consumerRetry     = "retry"
	consumerExchanges = "exchanges"
	consumerSingle    = "single_active"
)

const consumersKey = "rabbitmq.consumers"

// defaultConsumer gets all that its exchange does.
func defaultConsumer() RabbitMQConsumer {
	return RabbitMQConsumer{Bind: []string{"#"},
		Retry: []Duration{Duration(time.Minute), Duration(5 * time.Minute), Duration(15 * time.Minute)}}
}

// DeadLetterQueue returns the name of a consumer's dead-letter queue.
func DeadLetterQueue(consumer string) string { return consumer + ".dlq" }

// RetryQueue returns the name of the queue from which messages return to the consumer after a pause.
func RetryQueue(consumer string, pause Duration) string { return consumer + ".retry." + pause.String() }

// queues are the consumer's, its own first.
func (c RabbitMQConsumer) queues(name string) []string {
	list := []string{name, DeadLetterQueue(name)}
	for _, pause := range c.Retry {
		list = append(list, RetryQueue(name, pause))
	}
	return list
}

// consumers reads the mapping of the consumers' names.
func (f *file) consumers(key Key, n ast.Node) map[string]map[string]raw {
	entries, ok := f.mapping(n)
	if !ok {
		f.report(key.Name, n, "found "+describe(n), key.Allowed)
	}
	all := map[string]map[string]raw{}
	for _, entry := range entries {
		name := f.expanded(key, entry.Key)
		if _, twice := all[name]; twice {
			f.report(key.Name, entry.Key, fmt.Sprintf("%q is set twice", name), "once")
		}
		all[name] = f.consumer(key, name, entry.Value)
	}
	return all
}

// consumer reads what is set of one consumer, which may be nothing.
func (f *file) consumer(key Key, name string, n ast.Node) map[string]raw {
	entries, ok := f.mapping(n)
	if !ok && !isEmptyMapping(n) {
		f.report(key.Name, n, fmt.Sprintf("%s: found %s", name, describe(n)), key.Allowed)
	}
	set := map[string]raw{}
	words := []string{consumerBind, consumerRetry, consumerExchanges, consumerSingle}
	for _, entry := range entries {
		word := f.expanded(key, entry.Key)
		path := key.Name + "." + name + "." + word
		if _, twice := set[word]; twice {
			f.report(path, entry.Key, "set twice", "once")
		}
		if !slices.Contains(words, word) {
			f.report(path, entry.Key, "unknown key; the nearest known key is "+nearest(word, words), "")
			continue
		}
		r := raw{where: f.where(entry.Key)}
		if sequence, ok := entry.Value.(*ast.SequenceNode); ok {
			r.shape, r.list = isList, []string{}
			for _, item := range sequence.Values {
				r.list = append(r.list, f.expanded(key, item))
			}
		} else {
			r.text = f.expanded(key, entry.Value)
		}
		set[word] = r
	}
	return set
}

// setConsumers reads what a file has, or the same in one line.
func setConsumers(target *map[string]RabbitMQConsumer, r raw) error {
	nested := r.consumers
	if r.shape == isText {
		var err error
		if nested, err = consumersOf(r.text); err != nil {
			return err
		}
	} else if r.shape != isConsumers {
		return errors.New("want consumers with what they are bound with")
	}
	all := make(map[string]RabbitMQConsumer, len(nested))
	for name, set := range nested {
		c := defaultConsumer()
		for word, r := range set {
			var err error
			switch word {
			case consumerBind:
				err = setList(&c.Bind, r, func(s string) (string, error) { return s, nil })
			case consumerRetry:
				err = setList(&c.Retry, r, ParseDuration)
			case consumerExchanges:
				err = setList(&c.Exchanges, r, func(s string) (string, error) { return s, nil })
			case consumerSingle:
				c.SingleActive, err = parseBool(r.text)
			}
			if err != nil {
				return fmt.Errorf("read %s of %s: %w", word, name, err)
			}
		}
		all[name] = c
	}
	*target = all
	return nil
}

// consumersOf parses consumers that the environment or a flag gives, as YAML in one line.
func consumersOf(text string) (map[string]map[string]raw, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	parsed, err := parser.ParseBytes([]byte(text), 0, parser.AllowDuplicateMapKey())
	if err != nil || len(parsed.Docs) != 1 || parsed.Docs[0].Body == nil {
		return nil, errors.New("want YAML in one line")
	}
	f := file{lookup: func(string) (string, bool) { return "", false }}
	nested := f.consumers(Key{Name: consumersKey}, parsed.Docs[0].Body)
	if len(f.problems) > 0 {
		return nil, Problems(f.problems)
	}
	return nested, nil
}

// formatNested formats the found value for an error message.
func formatNested(nested map[string]map[string]raw) string {
	text := make([]string, 0, len(nested))
	for _, name := range slices.Sorted(maps.Keys(nested)) {
		var parts []string
		for _, word := range slices.Sorted(maps.Keys(nested[name])) {
			r := nested[name][word]
			parts = append(parts, word+": "+cmp.Or(r.text, formatList(r.list)))
		}
		text = append(text, name+": {"+strings.Join(parts, ", ")+"}")
	}
	return "{" + strings.Join(text, ", ") + "}"
}

// formatConsumers is the value as a file takes it. Binding keys are quoted: # and * mean something to YAML.
func formatConsumers(all map[string]RabbitMQConsumer) string {
	text := make([]string, 0, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		c := all[name]
		keys := make([]string, len(c.Bind))
		for i, key := range c.Bind {
			keys[i] = strconv.Quote(key)
		}
		one := fmt.Sprintf("%s: {bind: %s, retry: %s", name, formatList(keys), formatList(c.Retry))
		if len(c.Exchanges) > 0 {
			one += ", exchanges: " + formatList(c.Exchanges)
		}
		if c.SingleActive {
			one += ", single_active: true"
		}
		text = append(text, one+"}")
	}
	return "{" + strings.Join(text, ", ") + "}"
}

// The bounds of consumers. RabbitMQ takes a time to live of 2^32 - 1 milliseconds at most.
const (
	maxConsumerName = 200
	maxRetryPause   = 30 * day
)

var consumerName = regexp.MustCompile(`^[A-Za-z0-9._-]+$`)

func consumers() rule {
	return typed("consumers by the name of their queue, such as {notifications: {bind: [\"ticket.*\"], "+
		"retry: [1m, 5m, 15m]}}; exchanges: [a, b] for other exchanges than message.topic's; single_active: true "+
		"for delivery to one process at a time, in the order of keys",
		func(all map[string]RabbitMQConsumer) string {
			owners := map[string]string{}
			for _, name := range slices.Sorted(maps.Keys(all)) {
				if why := all[name].wrong(name); why != "" {
					return name + ": " + why
				}
				for _, queue := range all[name].queues(name) {
					if other, taken := owners[queue]; taken && other != name {
						return fmt.Sprintf("%s and %s would share the queue %s", other, name, queue)
					}
					owners[queue] = name
				}
			}
			return ""
		})
}

// wrong explains why the consumer is invalid; "" if it is valid.
func (c RabbitMQConsumer) wrong(name string) string {
	switch {
	case len(name) > maxConsumerName || !consumerName.MatchString(name) || strings.HasPrefix(name, "amq."):
		return fmt.Sprintf("a name has up to %d of a-z, A-Z, 0-9, '.', '_' and '-', and does not begin with amq.",
			maxConsumerName)
	case len(c.Bind) == 0:
		return `bind has no key; leave it out, or write ["#"], for all messages`
	case slices.ContainsFunc(c.Bind, func(key string) bool { return len(key) > maxRoutingKey }):
		return fmt.Sprintf("a binding key has at most %d bytes", maxRoutingKey)
	case slices.ContainsFunc(c.Retry, func(d Duration) bool {
		return d <= 0 || d > maxRetryPause || d.Std()%time.Millisecond != 0
	}):
		return fmt.Sprintf("a pause of retry is at least 1ms and at most %s, in whole milliseconds", maxRetryPause)
	}
	for _, exchange := range c.Exchanges {
		if why := IllegalTopic(exchange); why != "" {
			return fmt.Sprintf("the exchange %q %s", exchange, why)
		}
	}
	return ""
}

// boundConsumers refuses a consumer that would get no messages, or whose exchange is unknown.
var boundConsumers = relation{
	keys: []string{consumersKey, "message.topic", "sink"},
	allowed: "exchanges for each consumer where message.topic has columns in braces, including one that message.topic " +
		"can name",
	check: func(c *Config) string {
		parts, err := ParseTemplate(c.Message.Topic)
		if c.Sink != SinkRabbitMQ || err != nil {
			return ""
		}
		pattern, columns := "^", false
		for _, p := range parts {
			pattern += regexp.QuoteMeta(p.Literal)
			if p.Column != "" {
				pattern, columns = pattern+".+", true
			}
		}
		can := regexp.MustCompile(pattern + "$")
		for _, name := range slices.Sorted(maps.Keys(c.RabbitMQ.Consumers)) {
			exchanges := c.RabbitMQ.Consumers[name].Exchanges
			switch {
			case len(exchanges) == 0 && columns:
				return fmt.Sprintf("%s without exchanges, and message.topic %q", name, c.Message.Topic)
			case len(exchanges) > 0 && !slices.ContainsFunc(exchanges, can.MatchString):
				return fmt.Sprintf("%s with the exchanges %s, and message.topic %q", name, formatList(exchanges), c.Message.Topic)
			}
		}
		return ""
	},
}
