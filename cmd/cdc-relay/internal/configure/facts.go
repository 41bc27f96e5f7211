package configure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/doctor/install"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/relay"
)

// relayOf writes what the relay owns in the database, and what is against the table as it is mapped.
func (w *writer) relayOf(ctx context.Context) {
	w.slot()
	w.publication()
	st, err := store.Open(ctx, relay.StoreConfig(w.cfg))
	if err != nil {
		w.page.remember("the database could not be checked as the relay will: %v", err)
		return
	}
	defer st.Close()
	one := st
	if len(w.tables) > 0 {
		one = st.Of(w.recognised.schema, w.recognised.name)
	}
	table, err := one.Outbox(ctx)
	var several interface{ Unwrap() []error }
	switch {
	case err == nil, errors.Is(err, store.ErrNoOutbox):
	case errors.As(err, &several):
		for _, one := range several.Unwrap() {
			w.page.remember("%v", one)
		}
		return
	default:
		w.page.remember("%v", err)
		return
	}
	plan, err := install.Missing(ctx, w.cfg, st, true)
	if err != nil {
		w.page.remember("what init has to create could not be found out: %v", err)
		return
	}
	w.states(plan.Proposed)
	if len(plan.Proposed) == 0 {
		return
	}
	comments := []string{"The table has columns that can show what became of its events. Take away the # of what fits:"}
	for _, line := range install.YAML(plan.Proposed)[1:] {
		comments = append(comments, strings.TrimSpace(line))
	}
	w.page.set("outbox.after_publish", w.cfg.Outbox.AfterPublish, comments...)
	if slices.ContainsFunc(plan.Proposed, func(l install.Line) bool { return l.Key == "outbox.published_when" }) {
		which := "all rows of %s"
		if table.HasPublishedAt {
			which = "each row of %s whose published_at is NULL, whatever else its columns say"
		}
		w.page.remember("decide outbox.published_when: without it the first start publishes "+which, w.cfg.Outbox.Named())
	}
}

// slot writes the slot's name, and whether it is there.
func (w *writer) slot() {
	name, others := w.cfg.Postgres.Slot, []string{}
	if w.cfg.Service != config.Default().Service && !w.isSet("service") {
		w.page.set("service", quote(w.cfg.Service), "The label of this relay's metrics and logs.") // it goes with the slot
	}
	for _, s := range w.d.slots {
		if s.name == name && s.database != w.d.name {
			w.page.set("postgres.slot", quote(name), "The name is taken: "+s.elsewhere()+".")
			w.page.remember("set postgres.slot to a name that no slot of this server has: %s is taken (%s)", name, s.elsewhere())
			return
		}
		if s.name == name {
			state := "not in use now"
			if s.active {
				state = "in use"
			}
			w.page.set("postgres.slot", quote(name), fmt.Sprintf("The slot exists (%s, %s, %s).", s.plugin, s.status, state))
			if s.plugin != "pgoutput" {
				w.page.remember("the slot %s has the plugin %s and not pgoutput: choose another name in postgres.slot", name,
					s.plugin)
			}
			return
		}
		if s.database == w.d.name {
			others = append(others, s.name)
		}
	}
	comments := []string{"The slot does not exist yet: cdc-relay init creates it."}
	if len(others) > 0 {
		comments = append(comments, "Others of this database: "+strings.Join(others, ", ")+".")
	}
	w.page.set("postgres.slot", quote(name), comments...)
	if len(w.d.schemas) > 0 {
		w.page.remember("relays have published from this database (their tables are in %s): postgres.slot must be theirs, "+
			"or read docs/moving-postgres.md", strings.Join(w.d.schemas, ", "))
	}
}

// elsewhere is whose a slot is that is not of this database.
func (s slot) elsewhere() string {
	if s.database == "" {
		return "a physical slot of this server has it"
	}
	return "a slot of database " + s.database + " on this server has it"
}

// publication writes the publication's name, and whether it publishes the table.
func (w *writer) publication() {
	name, beside := w.cfg.Postgres.Publication, []string{}
	for _, p := range w.d.publications {
		covers := p.all || w.publishedBy(p)
		switch {
		case p.name != name && covers:
			beside = append(beside, p.name)
		case p.name != name:
		case !p.inserts, !covers:
			w.page.set("postgres.publication", quote(name), "It exists, and does not publish inserts of the table.")
			w.page.remember("the publication %s does not publish inserts of %s: cdc-relay check prints the fix", name,
				w.cfg.Outbox.Named())
			return
		default:
			w.page.set("postgres.publication", quote(name), "It exists, and publishes the table's inserts.")
			return
		}
	}
	comments := []string{"The publication does not exist yet: cdc-relay init creates it."}
	if len(beside) > 0 {
		comments = append(comments, "Other publications contain the table: "+strings.Join(beside, ", ")+".")
	}
	w.page.set("postgres.publication", quote(name), comments...)
}

// publishedBy reports whether the publication has the table, or all that the pattern chooses.
func (w *writer) publishedBy(p publication) bool {
	if w.cfg.Outbox.Tables == "" {
		return slices.Contains(p.published, w.cfg.TableName())
	}
	return len(w.tables) > 0 && !slices.ContainsFunc(w.tables, func(t table) bool {
		return !slices.Contains(p.published, t.String())
	})
}

// aws writes the region of a sink of AWS: the one that was set, or that of this process.
func (w *writer) aws() {
	region, is := map[string]string{config.SinkSQS: w.cfg.SQS.Region, config.SinkSNS: w.cfg.SNS.Region,
		config.SinkEventBridge: w.cfg.EventBridge.Region}[w.cfg.Sink]
	if !is {
		return
	}
	key, comment := w.cfg.Sink+".region", "Credentials are found as AWS's SDK finds them."
	here := cmp.Or(os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION"))
	switch {
	case region != "":
		w.page.set(key, quote(region), comment)
	case here != "":
		w.page.set(key, quote(here), "AWS_REGION, where this file was written. "+comment)
	default:
		w.page.set(key, `""`, "The region of AWS_REGION or of a profile, where the relay runs. "+comment)
		w.page.remember("name the AWS region in %s, unless AWS_REGION or a profile names it where the relay runs", key)
	}
}

// rest writes the sink, and all that was set.
func (w *writer) rest() {
	w.page.set("sink", w.cfg.Sink)
	w.aws()
	addresses := map[string]string{
		"postgres.replication_url": w.cfg.Postgres.ReplicationURL, "nats.url": w.cfg.NATS.URL, "redis.url": w.cfg.Redis.URL,
		"rabbitmq.url": w.cfg.RabbitMQ.URL, "rabbitmq.stream_url": w.cfg.RabbitMQ.StreamURL, "inbox.url": w.cfg.Inbox.URL,
	}
	addressOf := map[string]string{config.SinkNATS: "nats.url", config.SinkRedisStream: "redis.url",
		config.SinkBullMQ: "redis.url", config.SinkRabbitMQ: "rabbitmq.url", config.SinkRabbitMQStream: "rabbitmq.stream_url"}
	for _, k := range w.cfg.Shown() {
		address, isAddress := addresses[k.Key]
		if _, is := w.page.values[k.Key]; is || !w.isSet(k.Key) && addressOf[w.cfg.Sink] != k.Key {
			continue
		}
		switch {
		case k.Key == "webhook.url" && !isClean(w.cfg.Webhook.URL):
			w.leaveOut(k.Key, w.cfg.Webhook.URL)
		case k.Key == "webhook.url": // a receiver's token can be part of it
			w.page.set(k.Key, quote(w.cfg.Webhook.URL))
		case isAddress:
			text, had, clean := withoutPassword(address, slices.Contains(lists, k.Key))
			if !clean {
				w.leaveOut(k.Key, address)
				continue
			}
			if bare := natsLogin.ReplaceAllString(text, "$1"); k.Key == "nats.url" && (had || bare != text) {
				w.page.set(k.Key, quote(bare))
				w.page.remember("give nats.username and nats.password_file, or nats.token_file: the login in nats.url is " +
					"not written")
				continue
			}
			w.page.set(k.Key, quote(text))
			if had && k.Key != "postgres.replication_url" {
				section, _, _ := strings.Cut(k.Key, ".")
				w.page.remember("name a file with the password in %s.password_file: it is not written", section)
			}
		case strings.Contains(k.Value, "xxxxx"): // masked
			w.page.remember("%s was given and holds a secret, so it is not written: name a file instead", k.Key)
		default:
			w.page.set(k.Key, inFile(k))
		}
	}
}

// inFile is the value of a key as the file has it.
func inFile(k config.Shown) string {
	for _, key := range config.Keys() {
		if key.Name == k.Key && key.Kind == config.Text {
			return quote(k.Value)
		}
	}
	return k.Value
}
