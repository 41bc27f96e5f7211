package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// failureValues are the values of a failure that outbox.dead_set and retry_set can write.
var failureValues = []string{"{last_error}", "{attempts}", "{error_class}"}

// inBraces matches a value of a failure or something similar; quoted matches literals and comments of SQL.
var (
	inBraces = regexp.MustCompile(`\{[^{}]*\}`)
	quoted   = regexp.MustCompile(`'[^']*'|"[^"]*"`)
)

// failureSet is a SET list with values in braces, which are parameters: the server judges the rest when the statement
// is prepared.
func failureSet() rule {
	list := sql("a SET list such as status = 'FAILED', last_error = {last_error}, retry_count = {attempts}")
	return rule{allowed: list.allowed, check: func(value any) string {
		set := value.(string)
		problems := []string{}
		if complaint := list.check(value); complaint != "" {
			problems = append(problems, complaint)
		}
		for _, text := range quoted.FindAllString(set, -1) {
			for _, v := range failureValues {
				if strings.Contains(text, v) {
					problems = append(problems, fmt.Sprintf("%s stands in quotes, and is a value of its own: leave them out, as in "+
						"'after ' || %s", v, v))
				}
			}
		}
		for _, v := range inBraces.FindAllString(quoted.ReplaceAllString(set, ""), -1) {
			if !slices.Contains(failureValues, v) {
				problems = append(problems, fmt.Sprintf("no value %s; known: %s", v, strings.Join(failureValues, ", ")))
			}
		}
		return strings.Join(problems, "; ")
	}}
}

// failuresUndone: what a failure wrote into the row is overwritten by what success writes, or goes with the row.
var failuresUndone = []relation{undone("outbox.dead_set", func(c *Config) string { return c.Outbox.DeadSet }),
	undone("outbox.retry_set", func(c *Config) string { return c.Outbox.RetrySet })}

func undone(key string, set func(*Config) string) relation {
	return relation{
		keys:    []string{key, "outbox.after_publish"},
		allowed: "empty with outbox.after_publish: keep: nothing would undo it once the event is published",
		check: func(c *Config) string {
			if set(c) == "" || c.Outbox.AfterPublish != AfterPublishKeep {
				return ""
			}
			return fmt.Sprintf("%q with after_publish %s", set(c), c.Outbox.AfterPublish)
		},
	}
}
