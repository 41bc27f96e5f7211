package brokers_test

import (
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Three servers of NATS, which sync every two minutes by default, lose their power under load: each has what it had
// on its disk at another moment, and acknowledged messages are gone. Breaks it catches: a relay that stops at a stream
// that went back, or says nothing; messages that are gone and that verify does not find, or cannot give back; one that
// is given back and was there; events out of order besides those given back.
func TestNATSThatForgetsInAPowerCutIsRepaired(t *testing.T) {
	if harness.Count(t, "power cuts of NATS") == 0 {
		t.Skip("at night")
	}
	servers := harness.NATSCluster(t)
	var urls []string
	for _, s := range servers {
		urls = append(urls, s.URL)
	}
	all := strings.Join(urls, ",")
	cluster := natsCluster{t: t, servers: servers, nc: natsReader(t, all)}
	pg := harness.Postgres(t)
	settings := scenario{settings: []any{"sink", "nats", "nats.url", all}, begin: cluster.makeStream}.prepare(t, pg)
	relay := harness.StartRelay(t, settings)
	conn := pg.Connect(t)
	written := 0
	publish := func() {
		const part = 20 // transactions
		write(t, conn, written, written+part)
		written += part
		awaitPublished(t, pg, written*rows)
	}
	var forget []func()
	for _, s := range servers {
		publish()
		forget = append(forget, s.Keep(t))
	}
	publish() // none of them has this
	verified(t, relay).want(t, "before the power cut", verdict{Rows: written * rows, Records: written * rows})
	for _, s := range servers {
		s.Kill9()
	}
	for i, s := range servers {
		forget[i]()
		s.Start(t)
	}
	publish()
	found := verified(t, relay)
	if found.code != 1 || found.Missing < rows || found.Missing != found.Lost {
		t.Errorf("verify: got %+v, want what was acknowledged last to be lost", found)
	}
	if log := relay.Log(t); !strings.Contains(log, "offsets_went_back") {
		t.Error("the relay's log does not say that the stream went back")
	}
	if v := verified(t, relay, "--repair", "--yes"); v.Repaired == nil || *v.Repaired != found.Missing {
		t.Errorf("repair: got %+v, want %d repaired", v, found.Missing)
	}
	if v := verified(t, relay); v.Missing != 0 || v.Duplicated != 0 || v.Different != 0 || v.Records != v.Rows {
		t.Errorf("after the repair: got %+v", v)
	}
	relay.Stop(t)
	var first []message
	given := map[string]bool{}
	for _, m := range messagesOf(t, cluster.nc, settings.Topic("order")) {
		if m.replayed {
			given[m.id] = true
		} else {
			first = append(first, m)
		}
	}
	wantEach(t, first, written*rows-found.Missing, 0)
	for _, m := range first {
		if given[m.id] {
			t.Errorf("event %s was there, and is there again", m.id)
		}
	}
	if len(given) != found.Missing {
		t.Errorf("got %d events again, want %d", len(given), found.Missing)
	}
	t.Logf("%d events, %d forgotten, found and given back", written*rows, found.Missing)
}
