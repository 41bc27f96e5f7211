package config

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Part is a piece of a template: either literal text or a column of the row.
type Part struct {
	Literal string
	Column  string // empty for literal text
}

// ParseTemplate splits text such as "outbox.event.{aggregate_type}" into its parts. Braces hold one column name,
// in double quotes if it has a brace in it; a template cannot contain braces otherwise.
func ParseTemplate(s string) ([]Part, error) {
	var parts []Part
	for s != "" {
		literal, rest, open := strings.Cut(s, "{")
		if strings.Contains(literal, "}") {
			return nil, fmt.Errorf("a } without a {")
		}
		if literal != "" {
			parts = append(parts, Part{Literal: literal})
		}
		if !open {
			break
		}
		column, after, closed := strings.Cut(rest, "}")
		if strings.HasPrefix(rest, `"`) { // a brace may be in it
			var behind string
			column, behind, _ = cutQuoted(rest)
			after, closed = strings.CutPrefix(behind, "}")
		} else if strings.Contains(column, "{") {
			column = ""
		}
		if !closed {
			return nil, fmt.Errorf("a { without a }")
		}
		if !isIdentifier(column) {
			return nil, fmt.Errorf("{%s} is not a column", column)
		}
		parts = append(parts, Part{Column: column})
		s = after
	}
	return parts, nil
}

var topicText = regexp.MustCompile(`^[a-zA-Z0-9._-]*$`)

// topicTemplate checks what is known before there is a row: Kafka's rules for topic names
// (org.apache.kafka.common.internals.Topic), and no internal topic.
func topicTemplate() rule {
	const allowed = "a topic name of a-z, A-Z, 0-9, '.', '_' and '-', at most 249 long and not beginning with __; " +
		"columns of the row in braces, such as outbox.event.{aggregate_type}"
	return typed(allowed, func(v string) string {
		parts, err := ParseTemplate(v)
		if err != nil {
			return err.Error()
		}
		length := 0
		for _, p := range parts {
			if !topicText.MatchString(p.Literal) {
				return fmt.Sprintf("%q has a character that a topic name cannot have", p.Literal)
			}
			length += len(p.Literal)
		}
		return accept(length <= maxTopic && v != "" && v != "." && v != ".." && !strings.HasPrefix(v, "__"))
	})
}

// IllegalTopic explains why the relay cannot write to a Kafka topic of that name; it returns an empty string for a
// legal name.
func IllegalTopic(name string) string {
	switch {
	case name == "" || len(name) > maxTopic:
		return "must have 1 to 249 characters"
	case name == "." || name == "..":
		return "must not be . or .."
	case strings.HasPrefix(name, "__"):
		return "must not begin with __ (the broker's own topics)"
	}
	for _, c := range []byte(name) {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '.' && c != '_' && c != '-' {
			return "may have only a-z, A-Z, 0-9, dot, underscore and hyphen"
		}
	}
	return ""
}

func keyTemplate() rule {
	return typed("text with columns of the row in braces, such as {aggregate_id}; empty for messages without a key, and "+
		"without order", func(v string) string {
		if _, err := ParseTemplate(v); err != nil {
			return err.Error()
		}
		return ""
	})
}

// reservedHeaders is the prefix of the names that carry the relay's own facts (position, source, epoch, retry).
const reservedHeaders = "x-outbox-"

func headerNames() rule {
	const allowed = "column: header name, such as {id: x-event-id}; id, event_type, aggregate_type, created_at rename " +
		"that header, another column adds one; names differ from each other and do not begin with x-outbox-"
	return typed(allowed, func(v map[string]string) string {
		taken := map[string]string{}
		for _, column := range StandardHeaders {
			if _, renamed := v[column]; !renamed {
				taken[column] = column
			}
		}
		for _, column := range slices.Sorted(maps.Keys(v)) {
			header := v[column]
			switch other, double := taken[header]; {
			case !isIdentifier(column):
				return fmt.Sprintf("%q is not a column", column)
			case header == "" || strings.ContainsAny(header, "\x00\n"):
				return fmt.Sprintf("%s has no valid header name", column)
			case strings.HasPrefix(strings.ToLower(header), reservedHeaders):
				return fmt.Sprintf("%q begins with %s", header, reservedHeaders)
			case double:
				return fmt.Sprintf("%s and %s would both be the header %q", other, column, header)
			}
			taken[header] = column
		}
		return ""
	})
}
