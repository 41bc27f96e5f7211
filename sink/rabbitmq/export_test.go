package rabbitmq

import "testing"

// Send lets a header through that RabbitMQ keeps for itself, as long as the test runs.
func Send(t *testing.T, name string) {
	meaning := brokers[name]
	delete(brokers, name)
	t.Cleanup(func() { brokers[name] = meaning })
}

// Kept are the names of headers that RabbitMQ keeps for itself.
func Kept() (names []string) {
	for name := range brokers {
		names = append(names, name)
	}
	return names
}
