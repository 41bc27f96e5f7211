package relay

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// recorder registers collectors and remembers them.
type recorder struct {
	prometheus.Registerer
	made *[]prometheus.Collector
}

// MustRegister registers each collector.
func (r recorder) MustRegister(collectors ...prometheus.Collector) {
	r.Registerer.MustRegister(collectors...)
	*r.made = append(*r.made, collectors...)
}

// join registers what the relay measures with a program's registerer as well. It registers all or nothing.
func (m *metrics) join(with prometheus.Registerer, service string) error {
	labelled := prometheus.WrapRegistererWith(prometheus.Labels{"service": service}, with)
	m.leave = func() {}
	for n, c := range m.made {
		err := labelled.Register(c)
		if err == nil {
			continue
		}
		for _, done := range m.made[:n] {
			labelled.Unregister(done)
		}
		if _, twice := errors.AsType[prometheus.AlreadyRegisteredError](err); twice {
			return fmt.Errorf("register the metrics of service %q: another relay of this name has them: %w", service, err)
		}
		return fmt.Errorf("register the metrics of service %q: %w", service, err)
	}
	m.leave = func() {
		for _, c := range m.made {
			labelled.Unregister(c)
		}
	}
	return nil
}
