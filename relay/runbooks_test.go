package relay_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/relay"
)

var haltCode = regexp.MustCompile(`(?m)^\s+[A-Z][A-Za-z]+\s+= "([a-z_]+)"$`)

// haltCodes are the codes that halt.go names.
func haltCodes(t *testing.T) (codes []string) {
	t.Helper()
	text, err := os.ReadFile("../internal/run/halt/halt.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range haltCode.FindAllStringSubmatch(string(text), -1) {
		codes = append(codes, m[1])
	}
	if len(codes) < 10 {
		t.Fatalf("halt.go: got the codes %q, want all of them", codes)
	}
	return codes
}

// Breaks it catches: a halt whose page is not there when someone needs it at night, a page for a halt that is no
// more, a code without a series, one that does not say what it means, what is at risk and what to do; a link that
// leads nowhere. Seen to fail with a page taken away, with a code taken out, and without the series of one.
func TestEveryHaltHasItsRunbook(t *testing.T) {
	const dir = "../docs/runbooks"
	codes := haltCodes(t)
	pages := append(slices.Clone(codes), "configuration") // of a file of several relays; no relay that runs has it
	for _, code := range pages {
		text, err := os.ReadFile(filepath.Join(dir, code+".md"))
		if err != nil {
			t.Errorf("halt %s: %v", code, err)
			continue
		}
		for _, part := range []string{"# " + code + ": ", "**What it means.**", "**At risk.**", "**What to do**", "1. "} {
			if !strings.Contains(string(text), part) {
				t.Errorf("%s.md has no %q", code, part)
			}
		}
		for _, link := range regexp.MustCompile(`\]\(([^)#]+)`).FindAllStringSubmatch(string(text), -1) {
			if _, err := os.Stat(filepath.Join(dir, link[1])); err != nil {
				t.Errorf("%s.md: %v", code, err)
			}
		}
		halt := relay.Halt{Code: code}
		if page := "docs/runbooks/" + code + ".md"; !strings.Contains(halt.Error(), page) {
			t.Errorf("the error of halt %s does not name its page %s", code, page)
		}
	}
	var shown []string // from the start, at 0: an alert on a series that begins with 1 may see no change
	cfg := config.Default()
	cfg.Postgres.URL = "postgres://db/shop"
	r, err := relay.New(cfg, unused{})
	if err != nil {
		t.Fatal(err)
	}
	families, err := r.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "cdc_relay_halted" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "code" {
					shown = append(shown, l.GetValue())
				}
			}
		}
	}
	if want := slices.Sorted(slices.Values(codes)); !slices.Equal(shown, want) {
		t.Errorf("cdc_relay_halted: got the codes %q, want those of halt.go, %q", shown, want)
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range files {
		if !slices.Contains(pages, strings.TrimSuffix(page.Name(), ".md")) {
			t.Errorf("docs/runbooks/%s is of no halt", page.Name())
		}
	}
}
