package test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// Breaks it catches: a word of trouble that the page, or its picture, does not have; an alert there that no rule has.
func TestFourWordsOfTroubleAreExplained(t *testing.T) {
	page, err := os.ReadFile("../docs/trouble.md")
	if err != nil {
		t.Fatal(err)
	}
	rules, err := os.ReadFile("../deploy/prometheus/rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	_, picture, _ := strings.Cut(string(page), "```text\n")
	picture, text, _ := strings.Cut(picture, "```")
	for _, word := range []string{"degraded", "not ready", "alarm", "halted"} {
		if !strings.Contains(picture, "► "+strings.ToUpper(word)) {
			t.Errorf("the picture has no %s", strings.ToUpper(word))
		}
		if !strings.Contains(text, "\n| "+word+" | ") {
			t.Errorf("the table has no row %s", word)
		}
	}
	alerts := regexp.MustCompile(`\[((?:Cdc|Outbox)\w+)\]`).FindAllStringSubmatch(text, -1)
	if len(alerts) < 5 {
		t.Errorf("got %d alerts, want some for each word", len(alerts))
	}
	for _, alert := range alerts {
		if !strings.Contains(string(rules), "alert: "+alert[1]+"\n") {
			t.Errorf("no rule %s", alert[1])
		}
	}
}
