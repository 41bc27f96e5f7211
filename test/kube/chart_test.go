package kube

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v3/pkg/chartutil"
	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/cdc-relay/cdc-relay/config"
)

var rewrite = flag.Bool("rewrite", false, "write the files that are made from others")

// initURL is the Secret's value of init.urlKey.
const initURL = "postgres://owner:a%20secret@db.internal:5432/shop"

// environ returns the variables of a container that the relay reads.
func environ(c core.Container) (pairs []string) {
	for _, e := range c.Env {
		value := e.Value
		if e.ValueFrom != nil {
			value = initURL
		}
		pairs = append(pairs, e.Name+"="+value)
	}
	return pairs
}

// configured is the configuration that a container of the pod has, as the relay reads it.
func configured(t *testing.T, r rendered, pod core.PodSpec) config.Config {
	t.Helper()
	c := pod.Containers[0]
	text := ""
	for _, v := range pod.Volumes {
		if v.ConfigMap != nil && v.Name == "config" {
			text = get[core.ConfigMap](t, r, v.ConfigMap.Name).Data["relay.yaml"]
		}
	}
	if at := slices.Index(c.Args, "--config"); text == "" || at < 0 || c.Args[at+1] != "/etc/cdc-relay/relay.yaml" {
		t.Fatalf("%s: the configuration is %q, and the arguments %q", c.Name, text, c.Args)
	}
	cfg, err := config.Load(config.Input{File: "relay.yaml", Text: []byte(text), Environ: environ(c),
		Required: []string{"postgres.url", "kafka.brokers"}})
	if err != nil {
		t.Fatalf("%s: the relay refuses the configuration: %v\n%s", c.Name, err, text)
	}
	return cfg
}

// wantFilesMounted sees that each file of the configuration is in a mount, and each mount has its volume.
func wantFilesMounted(t *testing.T, cfg config.Config, pod core.PodSpec) {
	t.Helper()
	c := pod.Containers[0]
	for _, m := range c.VolumeMounts {
		if !slices.ContainsFunc(pod.Volumes, func(v core.Volume) bool { return v.Name == m.Name }) {
			t.Errorf("%s: the mount %s has no volume", c.Name, m.Name)
		}
	}
	for _, k := range cfg.Shown() {
		if !strings.HasSuffix(k.Key, "_file") || k.IsDefault || k.Value == "" {
			continue
		}
		if !slices.ContainsFunc(c.VolumeMounts, func(m core.VolumeMount) bool { return m.MountPath == path.Dir(k.Value) }) {
			t.Errorf("%s: %s = %s is in no mount of %v", c.Name, k.Key, k.Value, c.VolumeMounts)
		}
	}
}

// Breaks it catches: a field that Kubernetes does not know, a configuration that the relay refuses or that listens
// where no probe reaches it, a file that is not mounted, a stop that is cut short, a selector that finds nothing or
// counts init's pods. Seen to fail with "replica" for replicas, with config.http.listen left out of the defaults, with
// the secrets' mount left out of init, with init's label that of the relay, and with the relay's password file for
// init's URL.
func TestEveryValueSetRendersWhatKubernetesAndTheRelayTake(t *testing.T) {
	t.Parallel()
	c := loadChart(t)
	for _, file := range sets(t) {
		t.Run(strings.TrimSuffix(filepath.Base(file), "-values.yaml"), func(t *testing.T) {
			t.Parallel()
			r := renderSet(t, c, file, "shop")
			for _, o := range r.objects {
				wantNamed(t, o)
			}
			d := get[apps.Deployment](t, r, "shop-cdc-relay")
			pod := d.Spec.Template.Spec
			cfg := configured(t, r, pod)
			wantFilesMounted(t, cfg, pod)
			if grace := *pod.TerminationGracePeriodSeconds; time.Duration(grace)*time.Second <= cfg.ShutdownGrace.Std() {
				t.Errorf("terminationGracePeriodSeconds: got %d, want more than shutdown_grace, %v", grace, cfg.ShutdownGrace)
			}
			if port := pod.Containers[0].Ports[0]; port.ContainerPort != 9464 || port.Name != "http" ||
				!slices.Contains([]string{"0.0.0.0:9464", ":9464", "[::]:9464"}, cfg.HTTP.Listen) {
				t.Errorf("the port %v, and http.listen = %s", port, cfg.HTTP.Listen)
			}
			wantSelected(t, r, d)
			for _, o := range r.objects {
				job, is := o.(*batch.Job)
				if !is {
					continue
				}
				inner := job.Spec.Template.Spec
				its := configured(t, r, inner)
				wantFilesMounted(t, its, inner)
				if env := inner.Containers[0].Env; len(env) > 1 && (its.Postgres.URL != initURL ||
					its.Postgres.PasswordFile != "" || its.Postgres.ReplicationURL != "") {
					t.Errorf("init: got %+v, want the URL of init.urlKey alone", its.Postgres)
				}
				its.Postgres = cfg.Postgres
				if !reflect.DeepEqual(its, cfg) || inner.Containers[0].Args[0] != "init" {
					t.Errorf("init: got %v and the configuration %+v, want the relay's, %+v", inner.Containers[0].Args, its, cfg)
				}
			}
			if !strings.Contains(r.notes, "port-forward deploy/shop-cdc-relay 9464") {
				t.Errorf("notes: got %s", r.notes)
			}
		})
	}
}

// wantSelected sees that everything that selects pods selects the relay's, and init's only what is for init.
func wantSelected(t *testing.T, r rendered, d *apps.Deployment) {
	t.Helper()
	relay := labels.Set(d.Spec.Template.Labels)
	initPods := labels.Set{}
	for _, o := range r.objects {
		if job, is := o.(*batch.Job); is {
			initPods = job.Spec.Template.Labels
		}
	}
	for key, o := range r.objects {
		var selector map[string]string
		switch o := o.(type) {
		case *apps.Deployment:
			selector = o.Spec.Selector.MatchLabels
		case *core.Service:
			selector = o.Spec.Selector
		case *policy.PodDisruptionBudget:
			selector = o.Spec.Selector.MatchLabels
		case *networking.NetworkPolicy:
			selector = o.Spec.PodSelector.MatchLabels
		case *monitoring.ServiceMonitor:
			if s := get[core.Service](t, r, d.Name); !labels.SelectorFromSet(o.Spec.Selector.MatchLabels).Matches(
				labels.Set(s.Labels)) || o.Spec.Endpoints[0].Port != s.Spec.Ports[0].Name {
				t.Errorf("%s does not find the Service %v", key, s)
			}
			continue
		default:
			continue
		}
		s, forInit := labels.SelectorFromSet(selector), strings.HasSuffix(o.GetName(), "-init")
		if len(selector) == 0 || s.Matches(relay) == forInit || len(initPods) > 0 && s.Matches(initPods) != forInit {
			t.Errorf("%s selects %v; the relay's pods have %v, init's %v", key, selector, relay, initPods)
		}
	}
}

// Breaks it catches: a probe that restarts a relay for an outage, a third relay during an update, a stop that is cut
// short, and a container with more rights than it needs. Seen to fail with /readyz as livenessProbe, with maxSurge 1,
// and with a writable root file system.
func TestChartKeepsWhatARelayNeeds(t *testing.T) {
	t.Parallel()
	r := renderSet(t, loadChart(t), chartFolder+"/ci/secret-values.yaml", "shop")
	deployment := get[apps.Deployment](t, r, "shop-cdc-relay").Spec
	pod := deployment.Template.Spec
	relay := pod.Containers[0]
	job := get[batch.Job](t, r, "shop-cdc-relay-init").Spec.Template.Spec
	service := get[core.Service](t, r, "shop-cdc-relay").Spec
	budget := get[policy.PodDisruptionBudget](t, r, "shop-cdc-relay").Spec
	for _, row := range []struct {
		what      string
		got, want any
	}{
		{"replicas", *deployment.Replicas, int32(2)},
		{"maxSurge", deployment.Strategy.RollingUpdate.MaxSurge.IntValue(), 0},
		{"token", *pod.AutomountServiceAccountToken, false},
		{"runs as root", !*pod.SecurityContext.RunAsNonRoot, false},
		{"read-only root", *relay.SecurityContext.ReadOnlyRootFilesystem, true},
		{"escalation", *relay.SecurityContext.AllowPrivilegeEscalation, false},
		{"startup", relay.StartupProbe.HTTPGet.Path, "/livez"},
		{"liveness", relay.LivenessProbe.HTTPGet.Path, "/livez"},
		{"readiness", relay.ReadinessProbe.HTTPGet.Path, "/readyz"},
		{"port", relay.Ports[0].ContainerPort, int32(9464)},
		{"topology", pod.Affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution[0].PodAffinityTerm.
			TopologyKey, "kubernetes.io/hostname"},
		{"init's command", job.Containers[0].Args[0], "init"},
		{"init's security", job.Containers[0].SecurityContext, relay.SecurityContext},
		{"service", service.ClusterIP, core.ClusterIPNone},
		{"service for relays that are not ready", service.PublishNotReadyAddresses, true},
		{"budget", budget.MaxUnavailable.IntValue(), 1},
	} {
		if !reflect.DeepEqual(row.got, row.want) {
			t.Errorf("%s: got %v, want %v", row.what, row.got, row.want)
		}
	}
}

// Breaks it catches: rules that are changed for one kind of installation only, and templates in them that Helm would
// take for its own. Seen to fail with a limit changed in the chart's file, and with the file read by tpl.
func TestChartHasTheAlertRules(t *testing.T) {
	t.Parallel()
	const of, copied = "../../deploy/prometheus/rules.yml", chartFolder + "/files/rules.yml"
	rules, err := os.ReadFile(of)
	if err != nil {
		t.Fatal(err)
	}
	if *rewrite {
		if err := os.WriteFile(copied, rules, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(copied); err != nil || !bytes.Equal(got, rules) {
		t.Fatalf("%s is not %s (%v): go test . -run AlertRules -rewrite", copied, of, err)
	}
	r := renderSet(t, loadChart(t), chartFolder+"/ci/everything-values.yaml", "shop")
	text := strings.ReplaceAll(string(rules), "http://127.0.0.1:9464", "https://relay.internal")
	var want monitoring.PrometheusRuleSpec
	if err := yaml.UnmarshalStrict([]byte(text), &want); err != nil {
		t.Fatal(err)
	}
	got := get[monitoring.PrometheusRule](t, r, "shop-cdc-relay").Spec
	if !reflect.DeepEqual(got, want) || len(got.Groups) < 3 {
		t.Errorf("rules: got %+v, want %+v", got, want)
	}
}

// Break it catches: a broker that the policy shuts out. Seen to fail with the ports of Kafka for all of them.
func TestPolicyLetsTheRelayOutToItsBroker(t *testing.T) {
	t.Parallel()
	c := loadChart(t)
	for set, want := range map[string]string{
		"nats": "[53 53 5432 4222]", "redis-stream": "[53 53 5432 6379]", "bullmq": "[53 53 5432 6379]",
		"rabbitmq": "[53 53 5432 5671 5672]", "rabbitmq-stream": "[53 53 5432 5551 5552]",
		"webhook": "[53 53 5432 80 443]", "sqs": "[53 53 5432 443]", "everything": "[53 53 5432 6432 9093 9094 9092 4318]",
	} {
		r := renderSet(t, c, chartFolder+"/ci/"+set+"-values.yaml", "shop")
		for _, name := range []string{"shop-cdc-relay", "shop-cdc-relay-init"} {
			p := get[networking.NetworkPolicy](t, r, name)
			if ports := fmt.Sprint(portsOut(p)); ports != want {
				t.Errorf("%s, %s: got the ports %s, want %s", set, name, ports, want)
			}
			if in := p.Spec.Ingress; (len(in) == 1) != (name == "shop-cdc-relay") || len(p.Spec.PolicyTypes) != 2 {
				t.Errorf("%s, %s: got ingress %v for %v", set, name, in, p.Spec.PolicyTypes)
			}
		}
	}
}

// portsOut are those that the policy lets out to.
func portsOut(p *networking.NetworkPolicy) (ports []int) {
	for _, rule := range p.Spec.Egress {
		for _, port := range rule.Ports {
			ports = append(ports, port.Port.IntValue())
		}
	}
	return ports
}

// Break it catches: a pooler, a second server or a broker on ports of its own that the policy shuts out, so that the
// installation waits for its init until it fails. Seen to fail with 5432 alone, and with brokers without a port left
// out.
func TestPolicyFollowsTheConfiguration(t *testing.T) {
	t.Parallel()
	c := loadChart(t)
	for _, row := range []struct{ config, want string }{
		{"postgres: {url: 'postgres://u@db/shop'}, kafka: {brokers: ['a:9094']}", "[53 53 5432 9094]"},
		{"postgres: {url: 'postgres://u@pool:6432/shop', replication_url: 'postgres://r@db:5433/shop'}, " +
			"kafka: {brokers: 'a:9092,b:9094'}",
			"[53 53 6432 5433 9092 9094]"},
		{"postgres: {url: 'postgres://u:${PASSWORD}@a:6432,b,c:6433/shop?x=1:2'}, " +
			"kafka: {brokers: ['a:9094', '${BROKER}']}",
			"[53 53 6432 5432 6433 9094 9092 9093]"},
		{"postgres: {url: 'host=a port=6432,6433 dbname=shop'}, inbox: {url: 'host=b'}, kafka: {brokers: ['a:1']}",
			"[53 53 6432 6433 5432 1]"},
		{"postgres: {url: 'postgres://u@[::1]:6432/shop'}, kafka: {brokers: ['[::1]:9095']}", "[53 53 6432 9095]"},
	} {
		var values map[string]any
		if err := yaml.Unmarshal([]byte("networkPolicy: {enabled: true}\nconfig: {"+row.config+"}"), &values); err != nil {
			t.Fatal(err)
		}
		p := get[networking.NetworkPolicy](t, renderValues(t, c, values, "shop"), "shop-cdc-relay")
		if ports := fmt.Sprint(portsOut(p)); ports != row.want {
			t.Errorf("%s: got the ports %s, want %s", row.config, ports, row.want)
		}
	}
}

// Break it catches: a chart whose image no one has, or that Helm refuses to look at. Seen to fail with another
// appVersion, and with a kubeVersion that no server has.
func TestChartIsOfAReleaseThatThereIs(t *testing.T) {
	t.Parallel()
	c := loadChart(t)
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat("../../docs/releases/v" + c.AppVersion() + ".md"); err != nil {
		t.Errorf("appVersion %s: %v", c.AppVersion(), err)
	}
	for version, want := range map[string]bool{"v1.26.9": false, "v1.27.0": true, "v1.34.1-gke.100": true} {
		if got := chartutil.IsCompatibleRange(c.Metadata.KubeVersion, version); got != want {
			t.Errorf("Kubernetes %s: got %v, want %v", version, got, want)
		}
	}
}
