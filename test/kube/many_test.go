package kube

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chartutil"
	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"

	"github.com/cdc-relay/cdc-relay/config"
)

const severalRelays = `
configDir:
  enabled: true
  memory: 200MiB
  relays:
    acme:
      postgres: {url: "postgres://relay@db.internal/acme", password_file: /run/secrets/cdc-relay/acme}
      kafka: {brokers: ["kafka.internal:9092"]}
      limits: {in_flight_bytes: 8MiB}
    bolt:
      postgres: {url: "postgres://relay@db.internal/bolt"}
      sink: nats
existingSecret: cdc-relay
config:
  http: {token_file: /run/secrets/cdc-relay/token, show_payloads: false}
  log: {level: debug}
init: {enabled: false}
`

func readValues(t *testing.T, text string) chartutil.Values {
	t.Helper()
	values, err := chartutil.ReadValues([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return values
}

// Breaks it catches: a relay's file that is not in the directory or that the relay refuses, a flag of the process that
// it does not know, an init without a configuration, pods that are replaced when a relay changes, or that are not when
// the process's own settings do.
func TestRelaysOfADirectoryChangeWithoutAnotherPod(t *testing.T) {
	t.Parallel()
	c := loadChart(t)
	r := renderValues(t, c, readValues(t, severalRelays), "shop")
	pod := get[apps.Deployment](t, r, "shop-cdc-relay").Spec.Template
	args := pod.Spec.Containers[0].Args
	if len(args) < 3 || args[0] != "run" || args[1] != "--config-dir=/etc/cdc-relay/relays" ||
		!slices.Contains(args, "--memory=200MiB") {
		t.Fatalf("got the arguments %q", args)
	}
	if !slices.ContainsFunc(pod.Spec.Containers[0].VolumeMounts, func(m core.VolumeMount) bool {
		return m.Name == "config" && m.MountPath == "/etc/cdc-relay/relays"
	}) {
		t.Errorf("the directory is not mounted: %v", pod.Spec.Containers[0].VolumeMounts)
	}
	var flags []config.Setting
	for _, key := range config.Keys() {
		for _, arg := range args {
			if value, is := strings.CutPrefix(arg, "--"+key.Flag+"="); is {
				flags = append(flags, config.Setting{Flag: "--" + key.Flag, Key: key.Name, Value: value})
			}
		}
	}
	if len(flags) != len(args)-3 {
		t.Errorf("of the arguments %q the relay knows the keys %v", args, flags)
	}
	files := get[core.ConfigMap](t, r, "shop-cdc-relay").Data
	if len(files) != 2 {
		t.Errorf("got the files %v, want acme.yaml and bolt.yaml", files)
	}
	for _, name := range []string{"acme.yaml", "bolt.yaml"} {
		cfg, err := config.Load(config.Input{File: name, Text: []byte(files[name]), Flags: flags,
			Required: []string{"postgres.url", "kafka.brokers"}})
		if err != nil {
			t.Errorf("the relay refuses %s: %v", name, err)
		}
		if cfg.HTTP.Listen != "0.0.0.0:9464" || cfg.HTTP.ShowPayloads || cfg.Log.Level != "debug" {
			t.Errorf("%s: the process listens on %q, shows payloads %v, and logs %q", name, cfg.HTTP.Listen,
				cfg.HTTP.ShowPayloads, cfg.Log.Level)
		}
	}
	for _, o := range r.objects {
		if job, is := o.(*batch.Job); is {
			t.Errorf("there is the job %s, which has no configuration", job.Name)
		}
	}
	template := func(from, to string) core.PodTemplateSpec {
		changed := renderValues(t, c, readValues(t, strings.Replace(severalRelays, from, to, 1)), "shop")
		return get[apps.Deployment](t, changed, "shop-cdc-relay").Spec.Template
	}
	if !reflect.DeepEqual(template("8MiB", "9MiB"), pod) {
		t.Error("a changed relay replaces the pods")
	}
	if reflect.DeepEqual(template("level: debug", "level: info"), pod) {
		t.Error("a changed level of the log does not reach the process")
	}
	relays := severalRelays[strings.Index(severalRelays, "  relays:"):strings.Index(severalRelays, "existingSecret")]
	own := template(relays, "  existingConfigMap: tenants\n")
	if got := own.Spec.Volumes[0].ConfigMap.Name; got != "tenants" {
		t.Errorf("the ConfigMap of the volume: got %s, want tenants", got)
	}
}

// Breaks it catches: values that the chart takes and the process refuses or ignores.
func TestValuesThatFitNoDirectoryAreRefused(t *testing.T) {
	t.Parallel()
	c := loadChart(t)
	for _, row := range [][2]string{
		{"      sink: nats", "      sink: nats\n      http: {listen: 0.0.0.0:1}"},
		{"      sink: nats", "      sink: kafka"},
		{"      sink: nats", "      sink: pigeons"},
		{"postgres://relay@db.internal/bolt", "postgres://relay:secret@db.internal/bolt"},
		{"  log: {level: debug}", "  log: {level: debug}\n  sink: nats"},
		{"init: {enabled: false}", "init: {enabled: true}"},
		{"existingSecret: cdc-relay", "existingSecret: ''"},
		{"  memory: 200MiB", "  existingConfigMap: tenants"},
		{"init: {enabled: false}", "init: {enabled: false}\nnetworkPolicy: {enabled: true}"},
		{"init: {enabled: false}", "init: {enabled: false}\nterminationGracePeriodSeconds: 10"},
	} {
		if _, err := render(c, readValues(t, strings.Replace(severalRelays, row[0], row[1], 1)), "shop"); err == nil {
			t.Errorf("%q in the place of %q: got no error", row[1], row[0])
		}
	}
}
