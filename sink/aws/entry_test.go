package aws

import (
	"regexp"
	"strings"
	"testing"
)

// Breaks it catches: a name that SQS or SNS refuses, with its whole request, as an attribute of its own.
func TestAttributeNamesAreThoseThatTheServicesTake(t *testing.T) {
	taken := regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`) // SQS API Reference, MessageAttributeValue
	parts := []string{"", ".", "a", "Z", "9", "_", "-", "é", " ", "\x00", "\n", "/", ":", "@", "[", "`", "{"}
	for _, first := range parts {
		for _, second := range parts {
			for _, third := range parts {
				name := first + second + third
				if got, want := attributeName(name), taken.MatchString(name); got != want {
					t.Errorf("%q: got %v, want %v", name, got, want)
				}
			}
		}
	}
	if name := strings.Repeat("a", maxAttributeName); !attributeName(name) || attributeName(name+"a") {
		t.Errorf("got %v for the longest name and %v for one character more", attributeName(name), attributeName(name+"a"))
	}
}
