package kube

import (
	"bytes"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

const chartFolder = "../../deploy/helm/cdc-relay"

// object is an object of the API.
type object interface {
	meta.Object
}

// kinds are the types that documents may have. A document of any other is a mistake.
var kinds = map[string]func() object{
	"v1/ConfigMap":                            func() object { return new(core.ConfigMap) },
	"v1/Service":                              func() object { return new(core.Service) },
	"v1/ServiceAccount":                       func() object { return new(core.ServiceAccount) },
	"apps/v1/Deployment":                      func() object { return new(apps.Deployment) },
	"batch/v1/Job":                            func() object { return new(batch.Job) },
	"policy/v1/PodDisruptionBudget":           func() object { return new(policy.PodDisruptionBudget) },
	"networking.k8s.io/v1/NetworkPolicy":      func() object { return new(networking.NetworkPolicy) },
	"monitoring.coreos.com/v1/ServiceMonitor": func() object { return new(monitoring.ServiceMonitor) },
	"monitoring.coreos.com/v1/PrometheusRule": func() object { return new(monitoring.PrometheusRule) },
}

// strict reads a document as the API server does with fieldValidation=Strict: a field that is unknown, misspelt in
// case, or there twice is an error.
func strict(document []byte) (object, error) {
	text, err := yaml.YAMLToJSONStrict(document)
	if err != nil {
		return nil, err
	}
	var head meta.TypeMeta
	if err := json.UnmarshalCaseSensitivePreserveInts(text, &head); err != nil {
		return nil, err
	}
	fresh, known := kinds[head.APIVersion+"/"+head.Kind]
	switch {
	case !known:
		return nil, fmt.Errorf("the kind %q of %q is none of those that are shipped", head.Kind, head.APIVersion)
	}
	o := fresh()
	wrong, err := json.UnmarshalStrict(text, o)
	if err == nil && len(wrong) > 0 {
		err = fmt.Errorf("%v", wrong)
	}
	return o, err
}

// documents are those of a file that have any content but comments.
func documents(text []byte) (found [][]byte) {
	for _, one := range bytes.Split(append([]byte("\n"), text...), []byte("\n---")) {
		for line := range bytes.Lines(one) {
			if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
				found = append(found, one)
				break
			}
		}
	}
	return found
}

// rendered is a chart rendered with values.
type rendered struct {
	objects map[string]object // by kind/name
	notes   string
}

// get is the object of a type and a name.
func get[T any, P interface {
	*T
	object
}](t *testing.T, r rendered, name string) P {
	t.Helper()
	var found P
	for _, o := range r.objects {
		if one, is := o.(P); is && o.GetName() == name {
			found = one
		}
	}
	if found == nil {
		t.Fatalf("there is no %T %s, but %v", found, name, slices.Sorted(maps.Keys(r.objects)))
	}
	return found
}

func loadChart(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := loader.Load(chartFolder)
	if err != nil {
		t.Fatalf("load the chart: %v", err)
	}
	return c
}

// render does what helm template does: values over the chart's own, the schema, the templates.
func render(c *chart.Chart, values map[string]any, release string) (map[string]string, error) {
	options := chartutil.ReleaseOptions{Name: release, Namespace: "shop", Revision: 1, IsInstall: true}
	all, err := chartutil.ToRenderValues(c, values, options, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	return engine.Engine{}.Render(c, all)
}

// renderSet renders the chart with a file of values, and reads all that it makes strictly.
func renderSet(t *testing.T, c *chart.Chart, path, release string) rendered {
	t.Helper()
	values, err := chartutil.ReadValuesFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return renderValues(t, c, values, release)
}

// renderValues renders the chart with the values, and reads all that it makes strictly.
func renderValues(t *testing.T, c *chart.Chart, values map[string]any, release string) rendered {
	t.Helper()
	files, err := render(c, values, release)
	if err != nil {
		t.Fatalf("render: %v", err)
	}
	r := rendered{objects: map[string]object{}}
	for name, text := range files {
		if strings.Contains(text, "<no value>") {
			t.Errorf("%s holds a value that is not there:\n%s", name, text)
		}
		switch base := filepath.Base(name); {
		case base == "NOTES.txt":
			r.notes = text
			continue
		case strings.HasPrefix(base, "_"):
			continue
		}
		for _, document := range documents([]byte(text)) {
			o, err := strict(document)
			if err != nil {
				t.Fatalf("%s: %v in\n%s", name, err, document)
			}
			key := fmt.Sprintf("%T/%s", o, o.GetName())
			if r.objects[key] != nil {
				t.Errorf("%s is there twice", key)
			}
			r.objects[key] = o
		}
	}
	return r
}

// sets are the chart's value sets, which are also there for who tries it out.
func sets(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob(chartFolder + "/ci/*-values.yaml")
	if err != nil || len(paths) < 10 {
		t.Fatalf("value sets: %v, %v", paths, err)
	}
	return paths
}
