package web_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// voice is one that tells a person of an incident, and after how long it must on a machine that is not busy.
type voice struct {
	name   string
	within time.Duration
	tells  func(context.Context) bool
}

// walk is a relay with its console in a browser, and a Prometheus with the rules that are shipped.
type walk struct {
	t          *testing.T
	pg         *harness.PG
	kafka      *harness.Cluster
	settings   harness.Settings
	relay      *harness.Relay
	tab        *tab
	prometheus *harness.Prometheus
	heard      int // of the log
}

func newWalk(t *testing.T) *walk {
	t.Helper()
	rules, err := os.ReadFile("../../deploy/prometheus/rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	w := &walk{t: t, pg: harness.Postgres(t), kafka: harness.NewOwnKafka(t, harness.KafkaConfig{})}
	w.settings = harness.NewSettings(t, w.pg, w.kafka.Addrs).With("reconcile.interval", "1s")
	w.kafka.CreateTopic(t, w.settings.Topic("order"), 3, nil)
	w.relay = harness.StartRelay(t, w.settings)
	w.prometheus = harness.StartPrometheus(t, string(rules), w.relay)
	w.tab = openTab(t)
	w.tab.fine = "net::ERR_" // some incidents end the relay
	w.tab.screen(1440, "light")
	w.tab.do("open the console", chromedp.Navigate(w.relay.URL+"/"))
	w.write("fine")
	harness.Eventually(t, time.Minute, "the event is recorded", func(context.Context) string {
		if got := w.pg.Query(t, "SELECT count(*) FROM cdc_relay_journal"); got != "1" {
			return got + " journal rows"
		}
		return ""
	})
	return w
}

// write has an event written.
func (w *walk) write(kind string) {
	w.t.Helper()
	w.pg.Exec(w.t, fmt.Sprintf(`INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload)
		VALUES ('order', 'a', '%s', '{}')`, kind))
}

// run runs a command of the relay, which a person pastes.
func (w *walk) run(args ...string) {
	w.t.Helper()
	if code, out, errs := w.relay.Run(w.t, args...); code != 0 {
		w.t.Fatalf("%v: exit code %d: %s%s", args, code, out, errs)
	}
}

// status must say all the words, or not say those that begin with !.
func (w *walk) status(within time.Duration, words ...string) voice {
	return voice{"status", within, func(context.Context) bool {
		_, out, errs := w.relay.Run(w.t, "status")
		return saysAll(out+errs, words)
	}}
}

func (w *walk) log(within time.Duration, words ...string) voice {
	return voice{"log", within, func(context.Context) bool { return saysAll(w.relay.Log(w.t)[w.heard:], words) }}
}

func (w *walk) console(within time.Duration, expression string) voice {
	return voice{"console", within, func(context.Context) bool { return w.tab.text(expression) == "true" }}
}

// alert is one that fires, or with ! one that has ended.
func (w *walk) alert(within time.Duration, name string) voice {
	name, ended := strings.CutPrefix(name, "!")
	return voice{"alert " + name, within, func(ctx context.Context) bool {
		firing, err := w.prometheus.Firing(ctx)
		return err == nil && firing[name] != ended
	}}
}

func saysAll(text string, words []string) bool {
	for _, word := range words {
		word, not := strings.CutPrefix(word, "!")
		if strings.Contains(text, word) == not {
			return false
		}
	}
	return true
}

// tell plays an incident and measures after how long each voice tells of it.
func (w *walk) tell(incident string, play func(), voices ...voice) {
	w.t.Helper()
	w.heard = len(w.relay.Log(w.t))
	play()
	began := time.Now()
	longest := time.Duration(0)
	for _, v := range voices {
		longest = max(longest, v.within)
	}
	harness.Eventually(w.t, longest+time.Minute, incident+" is told", func(ctx context.Context) string {
		var silent []voice
		for _, v := range voices {
			if !v.tells(ctx) {
				silent = append(silent, v)
				continue
			}
			took := time.Since(began)
			w.t.Logf("told: %s | %s | %.0f s, within %.0f", incident, v.name, took.Seconds(), v.within.Seconds())
			if took > 2*v.within { // the machine is busy with the rest of the walk
				w.t.Errorf("%s: %s took %v, want %v", incident, v.name, took, v.within)
			}
		}
		names := ""
		for _, v := range silent {
			names += " " + v.name
		}
		voices = silent
		return names
	})
}

const (
	toneGood = `document.getElementById("role").dataset.tone === "good" && !document.title.startsWith("No answer")`
	toneBad  = `document.getElementById("role").dataset.tone === "bad"`
	noAnswer = `document.title.startsWith("No answer")`
	soon     = 30 * time.Second // for what a person waits for while looking
	slack    = 30 * time.Second // beside the "for" of an alert
)

// Each incident is played with everything real and the rules as they are shipped. Breaks it catches: one of status,
// console, alerts and log that says nothing of an incident, something wrong, or says it later than its text promises,
// or that goes on when it is over.
func TestWalkThroughIncidents(t *testing.T) {
	harness.Full(t)
	for _, incident := range []struct {
		name string
		play func(*testing.T)
	}{
		{"a column is renamed", columnRenamed},
		{"a flood of bad rows", flood},
		{"a topic is made again", topicMadeAgain},
		{"the relay is frozen, then dies", relayDies},
		{"the only broker stops", brokerStops}, // its alerts take minutes
	}[:harness.Count(t, "incidents walked through")] {
		t.Run(incident.name, incident.play)
	}
}

func brokerStops(t *testing.T) {
	t.Parallel()
	w := newWalk(t)
	w.tell("the only broker stops", func() {
		w.kafka.Nodes[0].Stop(t)
		w.write("waits")
	}, w.status(soon, "not ready", "refused", "!NOT_LEADER"), w.console(soon, toneBad+" && "+has("not ready")),
		w.log(soon, "broker unavailable"), w.alert(2*time.Minute+slack, "OutboxBrokerUnavailable"),
		w.alert(5*time.Minute+slack, "OutboxNothingPublished"), w.log(2*time.Minute, "still unavailable"))
	w.tell("the broker is back", func() { w.kafka.Nodes[0].Start(t) }, w.status(time.Minute, "active for", ", ready"),
		w.console(time.Minute, toneGood), w.log(time.Minute, "broker recovered"),
		w.alert(time.Minute, "!OutboxBrokerUnavailable"), w.alert(time.Minute, "!OutboxNothingPublished"))
}

func relayDies(t *testing.T) {
	t.Parallel()
	w := newWalk(t)
	w.tell("the relay is frozen", w.relay.Freeze, w.console(15*time.Second, noAnswer),
		w.status(soon, "does not answer", "frozen", "!start one"), w.alert(time.Minute+slack, "CdcNoActiveRelay"))
	w.tell("the relay goes on", w.relay.Thaw, w.console(soon, toneGood), w.status(soon, "active for", ", ready"),
		w.alert(time.Minute, "!CdcNoActiveRelay"))
	w.tell("the relay is killed", func() { w.relay.Signal(syscall.SIGKILL) }, w.console(15*time.Second, noAnswer),
		w.status(soon, "no relay answers", "cdc-relay run"), w.alert(time.Minute+slack, "CdcNoActiveRelay"))
}

func columnRenamed(t *testing.T) {
	t.Parallel()
	w := newWalk(t)
	w.tell("a column is renamed", func() {
		w.pg.Exec(t, `ALTER TABLE outbox_events RENAME COLUMN payload TO body;
			INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, body) VALUES ('order', 'a', 'made', '{}')`)
	}, w.status(soon, "halted", "at risk", "to do", `"payload"`), w.console(soon, toneBad+" && "+has("halted")),
		w.log(soon, "halted"), w.alert(soon, "CdcRelayHalted"))
	w.tell("it has its name again", func() {
		w.pg.Exec(t, "ALTER TABLE outbox_events RENAME COLUMN body TO payload")
	}, w.status(time.Minute, "active for", ", ready"), w.console(time.Minute, toneGood),
		w.alert(time.Minute, "!CdcRelayHalted"))
}

func flood(t *testing.T) {
	t.Parallel()
	w := newWalk(t)
	w.tell("a flood of bad rows", func() {
		w.pg.Exec(t, `INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload, headers)
			SELECT 'order', 'k' || i, 'made', '{}', '[]' FROM generate_series(1, 10000) i`)
	}, w.status(soon, "halted", "INVALID_HEADERS", "resume --until-now"), w.console(soon, toneBad+" && "+has("halted")),
		w.log(soon, "resume --until-now"), w.alert(soon, "CdcRelayHalted"))
	w.tell("one resume --until-now", func() { w.run("resume", "--until-now", "--note", "a test") },
		w.status(2*time.Minute, "active for", "10000"), w.console(2*time.Minute, toneGood),
		w.alert(2*time.Minute, "!CdcRelayHalted"), w.alert(2*time.Minute, "OutboxDeadLettersGrowing"))
	w.tell("all are discarded", func() { w.run("dlq", "discard", "--all", "--yes", "--note", "a test") },
		w.status(soon, ", ready", "!10000"), w.console(soon, toneGood))
}

func topicMadeAgain(t *testing.T) {
	t.Parallel()
	w := newWalk(t)
	w.tell("a topic is made again", func() {
		admin, topic := w.kafka.Admin(t), w.settings.Topic("order")
		if deleted, err := admin.DeleteTopics(t.Context(), topic); err != nil || deleted.Error() != nil {
			t.Fatalf("delete %s: %v %v", topic, err, deleted.Error())
		}
		w.kafka.CreateTopic(t, topic, 3, nil)
		w.write("later")
	}, w.status(soon, "alarm", "verify --repair", "alarms ack"), w.console(soon, has("alarms ack")), w.log(soon, "alarm"),
		w.alert(soon, "OutboxAlarmOpen"))
	w.run("verify", "--repair", "--yes", "--note", "a test")
	w.tell("the alarm is acknowledged", func() { w.run("alarms", "ack", "--all", "--by", "ann", "--note", "a test") },
		w.status(soon, "!alarms ack"), w.console(soon, toneGood), w.alert(soon, "!OutboxAlarmOpen"))
}
