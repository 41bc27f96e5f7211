package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"reflect"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write the files that are made from others")

// The chart's schema has the configuration's in it. Breaks it catches: a key that the relay has and the chart refuses,
// or one that is gone and that the chart takes. Seen to fail with a key left out of the chart's file.
func TestChartKnowsTheKeysOfTheConfiguration(t *testing.T) {
	t.Parallel()
	const path = "../../deploy/helm/cdc-relay/values.schema.json"
	got := cdcRelay(t, nil, "config", "schema")
	var want map[string]any
	if err := json.Unmarshal([]byte(got.out), &want); err != nil || got.code != exitDone {
		t.Fatalf("config schema: exit code %d, %v", got.code, err)
	}
	delete(want, "$schema")
	delete(want, "title")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var chart map[string]any
	if err := json.Unmarshal(text, &chart); err != nil {
		t.Fatal(err)
	}
	properties := chart["properties"].(map[string]any)
	if *rewrite {
		properties["config"] = want
		var out bytes.Buffer
		encoder := json.NewEncoder(&out)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode(chart); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if !reflect.DeepEqual(properties["config"], any(want)) {
		t.Errorf("%s is not made of the configuration: go test ./cmd/cdc-relay -run Chart -rewrite", path)
	}
}
