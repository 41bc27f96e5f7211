package meter

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/internal/watch/health"
)

// tenants is a meter of so many outboxes, and what the last scrape showed by outbox.
type tenants struct {
	t     *testing.T
	m     *Meter
	names map[int32]string
	last  map[string]float64
}

func newTenants(t *testing.T, n int32) *tenants {
	s := &tenants{t: t, names: map[int32]string{}, last: map[string]float64{}}
	for i := range n {
		s.names[i+1] = fmt.Sprintf("tenant_%d.outbox", i+1)
	}
	s.m = New(Options{Service: "outbox", Start: time.Now(), Started: time.Now(), Health: &health.State{},
		Source: &played{}, Outboxes: func() map[int32]string { return maps.Clone(s.names) }})
	return s
}

func (s *tenants) publish(source int32, events int) {
	rows := make([]store.Published, events)
	for i := range rows {
		rows[i].Source = source
	}
	s.m.Outboxes.Journaled(rows)
}

// scrape returns the counters by outbox; those of dead letters have a + behind the name. None may go back or be gone.
func (s *tenants) scrape() (now map[string]float64, sum float64) {
	s.t.Helper()
	families, err := s.m.Registry().Gather()
	if err != nil {
		s.t.Fatal(err)
	}
	now = map[string]float64{}
	for _, f := range families {
		after := map[string]string{"outbox_published_by_outbox_total": "", "outbox_failed_by_outbox_total": "+"}
		suffix, is := after[f.GetName()]
		for _, series := range f.GetMetric() {
			for _, l := range series.GetLabel() {
				if is && l.GetName() == "outbox" {
					now[l.GetValue()+suffix] = series.GetCounter().GetValue()
				}
			}
		}
	}
	for name, was := range s.last {
		if v, there := now[name]; !there || v < was {
			s.t.Errorf("%s: got %v, there %v, and before %v", name, v, there, was)
		}
	}
	s.last = now
	for name, v := range now {
		if !strings.HasSuffix(name, "+") {
			sum += v
		}
	}
	return now, sum
}

// Breaks it catches: more series than the bound; a counter that goes back, or a series that goes, when others become
// busier or a table goes; an event that is counted twice or not at all; labels for the quiet instead of the busy. Seen
// to fail with labels in the order of the numbers, and with what the others have counted again by each scrape.
func TestBusiestOutboxesHaveSeriesThatNeverGoBack(t *testing.T) {
	s := newTenants(t, 1000)
	want := 0.0
	for round := range 20 {
		for source := range int32(1000) {
			events := 1 + round%3
			if source%5 == 4 { // the busy ones have the higher numbers of each five
				events = 50
			}
			s.publish(source+1, events)
			want += float64(events)
		}
		s.m.Outboxes.Died(5)
		now, sum := s.scrape()
		if sum != want {
			t.Fatalf("round %d: got %v events, want %v", round, sum, want)
		}
		if len(now) > 2*(outboxesLabelled+1) {
			t.Fatalf("round %d: got %d series", round, len(now))
		}
		delete(s.names, int32(round)) // tables go
	}
	now, _ := s.scrape()
	if len(now) != 2*(outboxesLabelled+1) {
		t.Errorf("got %d series, want all labels given", len(now))
	}
	for name := range now {
		var n int
		if _, err := fmt.Sscanf(name, "tenant_%d.outbox", &n); err == nil && n%5 != 0 {
			t.Errorf("%s has a label, and 200 others are busier", name)
		}
	}
	if dead := now["tenant_5.outbox+"] + now["other+"]; dead != 20 {
		t.Errorf("dead letters: got %v, want 20", dead)
	}
}

// Breaks it catches: labels that are all given away at the first scrape; few outboxes that show nothing before their
// first event; two series by one name, which no scrape survives, for a table that was made again; an event without a
// name that is lost. Seen to fail with all labels given by the first scrape.
func TestFewOutboxesAllHaveSeries(t *testing.T) {
	s := newTenants(t, 3)
	if now, _ := s.scrape(); len(now) != 2*4 || now["tenant_2.outbox"] != 0 {
		t.Errorf("before the first event: got %v, want 0 for each", now)
	}
	s.publish(2, 5)
	s.m.Outboxes.Died(2)
	s.names[9], s.names[10] = s.names[2], "odd\xff.outbox"
	s.publish(9, 2)
	s.publish(10, 1)
	s.publish(11, 4) // no one knows it
	now, sum := s.scrape()
	if now["tenant_2.outbox"] != 7 || now["tenant_2.outbox+"] != 1 || now["odd\ufffd.outbox"] != 1 || now["other"] != 4 ||
		sum != 12 {
		t.Errorf("got %v", now)
	}
	many := newTenants(t, 500)
	for source := range int32(200) {
		many.publish(source+1, 1)
	}
	if now, _ := many.scrape(); len(now) != 2*(outboxesLabelled/2+1) {
		t.Errorf("labels that the first scrape gives: got %d series", len(now))
	}
}

// Break it catches: metrics by outbox where there is one.
func TestOneOutboxHasNoSeriesByOutbox(t *testing.T) {
	m := New(Options{Service: "outbox", Health: &health.State{}, Source: &played{}})
	m.Outboxes.Journaled([]store.Published{{}})
	m.Outboxes.Died(0)
	families, err := m.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if strings.Contains(f.GetName(), "_by_outbox_") {
			t.Errorf("%s is there", f.GetName())
		}
	}
}

// Break it catches: an allocation for each row. The journal's writers call it.
func TestCountingByOutboxAllocatesNothing(t *testing.T) {
	s := newTenants(t, 3)
	rows := make([]store.Published, 1000)
	for i := range rows {
		rows[i].Source = int32(1 + i%3)
	}
	if got := testing.AllocsPerRun(20, func() { s.m.Outboxes.Journaled(rows) }); got > 0 {
		t.Errorf("allocations for 1,000 rows: got %.0f, want none", got)
	}
}

func BenchmarkJournaledByOutbox(b *testing.B) {
	for name, names := range map[string]func() map[int32]string{"one": nil,
		"several": func() map[int32]string { return nil }} {
		b.Run(name, func(b *testing.B) {
			m := New(Options{Service: "outbox", Health: &health.State{}, Source: &played{}, Outboxes: names})
			rows := make([]store.Published, 1000)
			for i := range rows {
				rows[i].Source = int32(i)
			}
			for b.Loop() {
				m.Outboxes.Journaled(rows)
			}
		})
	}
}
