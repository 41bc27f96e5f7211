package kube

import (
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chartutil"
	"sigs.k8s.io/yaml"
)

// required is set in each row below besides the wrong value.
const required = `config: {postgres: {url: "postgres://relay@db/shop"}, kafka: {brokers: ["kafka:9092"]}}`

// Breaks it catches: a value that is misspelt and does nothing, a password in a ConfigMap, an installation that cannot
// work and says so only in the pods' logs. Seen to fail without values.schema.json, and with the checks of
// templates/_helpers.tpl that print instead of fail.
func TestWrongValuesAreRefused(t *testing.T) {
	t.Parallel()
	c := loadChart(t)
	for _, row := range []struct{ values, says string }{
		{`replicas: 2`, "postgres"},
		{`config: {postgres: {url: ""}, kafka: {brokers: [a]}}`, "postgres"},
		{`config: {postgres: {url: "postgres://relay@db/shop"}}`, "kafka"},
		{`config: {postgres: {url: "postgres://relay@db/shop"}, kafka: {brokers: []}}`, "brokers"},
		{required + "\nreplica: 3", "replica"},
		{required + "\nreplicas: 0", "replicas"},
		{required + "\nreplicas: two", "replicas"},
		{required + "\nimage: {pullPolicy: Sometimes}", "pullPolicy"},
		{required + "\nimage: {repository: \"relay:latest\"}", "repository"},
		{required + "\nimage: {digest: latest}", "digest"},
		{required + "\nresources: {limits: {memory: plenty}}", "memory"},
		{required + "\nresources: {limit: {memory: 1Gi}}", "limit"},
		{required + "\nnetworkPolicy: {broker: {ports: [99999]}}", "ports"},
		{required + "\nserviceMonitor: {interval: often}", "interval"},
		{required + "\nprometheusRule: {runbookBase: relay.internal}", "runbookBase"},
		{required + "\ninit: {args: --no-slot}", "args"},
		{required + "\nfullnameOverride: Not_A_Name", "fullnameOverride"},
		{required + "\nterminationGracePeriodSeconds: 30s", "terminationGracePeriodSeconds"},

		// The configuration: what the relay itself would refuse, and what a ConfigMap must not have.
		{`config: {postgres: {url: "postgres://relay@db/shop"}, kafka: {broker: [a], brokers: [a]}}`, "broker"},
		{`config: {postgres: {url: "postgres://relay@db/shop"}, sink: kafak}`, "sink"},
		{`config: {http: {listen: "127.0.0.1:9464"}, postgres: {url: "postgres://r@db/shop"}, kafka: {brokers: [a]}}`,
			"listen"},
		{`config: {http: {listen: "0.0.0.0:80"}, postgres: {url: "postgres://r@db/shop"}, kafka: {brokers: [a]}}`, "listen"},
		{`config: {postgres: {url: "postgres://relay:secret@db/shop"}, kafka: {brokers: [a]}}`, "url"},
		{`config: {postgres: {url: "host=db user=relay password=secret"}, kafka: {brokers: [a]}}`, "url"},
		{`config: {postgres: {url: "postgres://r@db/shop?password=secret"}, kafka: {brokers: [a]}}`, "url"},
		{`config: {postgres: {url: "postgres://r@db/shop"}, sink: rabbitmq, rabbitmq: {url: "amqp://r:secret@mq/"}}`, "url"},
		{`config: {postgres: {url: "postgres://r@db/shop"}, sink: webhook, webhook: {url: "https://a/b", secret: whsec_a}}`,
			"secret"},

		// Checks of the templates, of values that depend on each other.
		{`config: {postgres: {url: "postgres://r@db/shop", password_file: /run/secrets/cdc-relay/p}, kafka: {brokers: [a]}}`,
			"existingSecret is empty"},
		{required + "\ninit: {urlKey: init-url}", "existingSecret, which is empty"},
		{`config: {shutdown_grace: 30s, postgres: {url: "postgres://r@db/shop"}, kafka: {brokers: [a]}}`,
			"must be more than config.shutdown_grace"},
		{`config: {shutdown_grace: 1m, postgres: {url: "postgres://r@db/shop"}, kafka: {brokers: [a]}}`,
			"must be more than config.shutdown_grace"},
	} {
		var values chartutil.Values
		if err := yaml.Unmarshal([]byte(row.values), &values); err != nil {
			t.Fatalf("%s: %v", row.values, err)
		}
		if _, err := render(c, values, "shop"); err == nil || !strings.Contains(err.Error(), row.says) {
			t.Errorf("%s\ngot %v, want it refused for %q", row.values, err, row.says)
		}
	}
}

// Break it catches: a rule that refuses what is right. Seen to fail with passwords looked for behind any colon.
func TestRightValuesAreTaken(t *testing.T) {
	t.Parallel()
	c := loadChart(t)
	for _, text := range []string{
		required,
		`config: {postgres: {url: "postgres://relay:${PGPASSWORD}@db:5432/shop"}, kafka: {brokers: "a:9092,b:9092"}}`,
		`config: {postgres: {url: "host=db password=${PGPASSWORD}"}, kafka: {brokers: ["${BROKERS}"]}}`,
		`config: {postgres: {url: "postgres://db:5432/shop?user=relay"}, kafka: {brokers: [a]}}`,
		`config: {sink: nats, nats: {url: "tls://a:4222,tls://${NATS_TOKEN}@b:4222"}, postgres: {url: "postgres://u@db/shop"}}`,
		required + "\nglobal: {anything: true}",
		required + "\nresources: {limits: {memory: null, cpu: 2}}",
		required + "\npodSecurityContext: {runAsUser: null, runAsGroup: null, fsGroup: null}",
	} {
		var values chartutil.Values
		if err := yaml.Unmarshal([]byte(text), &values); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if _, err := render(c, values, "shop"); err != nil {
			t.Errorf("%s\ngot refused: %v", text, err)
		}
	}
}
