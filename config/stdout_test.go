package config

import (
	"strings"
	"testing"
)

// What is printed counts as published. Breaks it catches: a dry run that uses up the events of a relay to Kafka, by its
// slot, by its journal, or by marking rows; a rule that gets into the way of Kafka; brokers asked for without need.
func TestPrintingKeepsAwayFromWhatARelayReads(t *testing.T) {
	safe := []Setting{{"--set", "sink", SinkStdout}, {"--set", "postgres.slot", "look_stdout"},
		{"--set", "postgres.schema", "look_stdout"}, {"--set", "outbox.after_publish", AfterPublishKeep}}
	required := []string{"postgres.url", "kafka.brokers"}
	url := Setting{"--set", "postgres.url", "postgres://h/d"}
	if problems := problemsOf(t, Input{Flags: append(safe, url), Required: required}); len(problems) > 0 {
		t.Errorf("a dry run: got %v, want it allowed without brokers", problems)
	}
	if problems := problemsOf(t, Input{Flags: []Setting{url}, Required: required}); len(problems) != 1 ||
		problems[0].Key != "kafka.brokers" {
		t.Errorf("Kafka without brokers: got %v, want kafka.brokers required", problems)
	}
	for i, s := range safe[1:] {
		for _, value := range map[string][]string{
			"postgres.slot": {"cdc_relay", "stdout_1"}, "postgres.schema": {"public"},
			"outbox.after_publish": {AfterPublishMark, AfterPublishDelete},
		}[s.Key] {
			flags := append([]Setting{}, safe...)
			flags[i+1].Value = value
			if problems := problemsOf(t, Input{Flags: flags}); len(problems) != 1 || problems[0].Key != s.Key ||
				!strings.Contains(problems[0].What, SinkStdout) {
				t.Errorf("a dry run with %s = %s: got %v, want that key refused", s.Key, value, problems)
			}
			if problems := problemsOf(t, Input{Flags: []Setting{{"--set", s.Key, value}}}); len(problems) > 0 {
				t.Errorf("Kafka with %s = %s: got %v, want it allowed", s.Key, value, problems)
			}
		}
	}
}
