package logqueue

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/rs/zerolog"
)

// Breaks it catches: a message, field, error or nested value of a row that leaves its line of the log, or paints.
// Seen to fail without the preparation, and with what is in lists, or in objects, left as it is.
func TestConsoleKeepsTextsOnTheirLine(t *testing.T) {
	const hostile = "x\nFAIL \x1b[2J\u009b31m\u202e"
	var out bytes.Buffer
	log := zerolog.New(Console(&out, false))
	log.Warn().Str("key", hostile).Str(hostile, "field").Err(errors.New(hostile)).Strs("list", []string{hostile}).
		Any("object", map[string]string{hostile: hostile}).Msg(hostile)
	if got := out.String(); strings.Count(got, "\n") != 1 || strings.ContainsAny(got, "\x1b\u009b\u202e") {
		t.Errorf("got %q, want one line without controls", got)
	}
}
