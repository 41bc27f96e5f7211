package kube

import (
	"testing"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// wantNamed holds names and labels to the rules of the API, which are not in its types.
func wantNamed(t *testing.T, o object) {
	t.Helper()
	wrong := validation.IsDNS1123Subdomain(o.GetName())
	if _, is := o.(*core.Service); is {
		wrong = append(wrong, validation.IsDNS1035Label(o.GetName())...)
	}
	for name, value := range o.GetLabels() {
		wrong = append(append(wrong, validation.IsQualifiedName(name)...), validation.IsValidLabelValue(value)...)
	}
	for name := range o.GetAnnotations() {
		wrong = append(wrong, validation.IsQualifiedName(name)...)
	}
	for _, why := range wrong {
		t.Errorf("%T %s: %s", o, o.GetName(), why)
	}
}

// Break it catches: an installation that Kubernetes refuses because of its release's name. Seen to fail with names of
// 63 characters.
func TestNamesOfAnyReleaseAreNames(t *testing.T) {
	t.Parallel()
	c := loadChart(t)
	const longest = "a-release-of-fifty-three-characters-which-helm-allows"
	for _, release := range []string{"r", "cdc-relay", "shop-cdc-relay-eu", longest} {
		r := renderSet(t, c, chartFolder+"/ci/everything-values.yaml", release)
		for _, o := range r.objects {
			wantNamed(t, o)
			if len(o.GetName()) > 63 {
				t.Errorf("%s: %T %s has more than 63 characters", release, o, o.GetName())
			}
		}
	}
}
