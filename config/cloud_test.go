package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Breaks it catches: a block of YAML on a page about a service that the relay would not start with. Seen to fail with a
// key misspelt, and with the client's secret left out.
func TestBlocksOfTheCloudPagesLoad(t *testing.T) {
	pages, err := filepath.Glob("../docs/cloud/*.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for i, rest := range strings.Split(string(text), "```yaml\n")[1:] {
			block, _, closed := strings.Cut(rest, "```")
			blocks++
			in := Input{File: page, Text: []byte(block), Required: []string{"postgres.url", "kafka.brokers"}}
			cfg, err := Load(in)
			if !closed || err != nil {
				t.Errorf("%s, block %d: got %v", page, i+1, err)
			}
			if user := cfg.Kafka.SASL.Username; strings.Contains(user, "$") && user != "$ConnectionString" {
				t.Errorf("%s, block %d: got the user %s, which Event Hubs does not know", page, i+1, user)
			}
		}
	}
	if blocks < 15 {
		t.Errorf("blocks on the pages: got %d, want all", blocks)
	}
}
