package config

import (
	"strings"
	"testing"
)

// Breaks it catches: a mistake that is told only once the one before it is fixed; a row that says failed forever,
// because nothing overwrites what its failure wrote. Seen to fail with the first problem only, and without the relation
// to after_publish.
func TestEveryMistakeOfAFailureSetIsToldAtOnce(t *testing.T) {
	c := Default()
	c.Postgres.URL, c.Kafka.Brokers = "postgres://h/d", []string{"b:1"}
	c.Outbox.DeadSet, c.Outbox.RetrySet = "a = {x}, b = {y}, c = '{attempts}'", "d = {z}"
	err := c.Validate()
	if err == nil {
		t.Fatal("got no error")
	}
	for _, want := range []string{"outbox.dead_set", "no value {x}", "no value {y}", "{attempts} stands in quotes",
		"outbox.retry_set", "no value {z}"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s is not told: %v", want, err)
		}
	}
	c.Outbox.DeadSet, c.Outbox.RetrySet = "a = {attempts}", "a = {attempts}"
	c.Outbox.AfterPublish = AfterPublishKeep
	err = c.Validate()
	problems, _ := err.(Problems)
	if len(problems) != 2 || !strings.Contains(err.Error(), "nothing would undo it") {
		t.Errorf("with keep: got %v, want a problem of each key", err)
	}
	c.Outbox.AfterPublish = AfterPublishDelete
	if err := c.Validate(); err != nil {
		t.Errorf("with delete: %v", err)
	}
}
