package cli

import (
	"errors"
	"io"
	"os"
	"strings"
	"testing"
)

// Breaks it catches: a question that Ctrl-C does not end, and an answer that is taken for another. Seen to fail with
// the signal not looked at, and with any answer taken.
func TestQuestionEndsByItsAnswerOrASignal(t *testing.T) {
	for said, want := range map[string]string{"drop\n": "", " drop \n": "", "drop": "", "no\n": "not confirmed",
		"": "not confirmed", "\n": "not confirmed"} {
		if err := answered(strings.NewReader(said), nil, "drop"); (err == nil) != (want == "") ||
			err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", said, err, want)
		}
	}
	silent, mouth := io.Pipe()
	defer func() { _ = mouth.Close() }()
	stop := make(chan os.Signal, 1)
	stop <- os.Interrupt
	if err := answered(silent, stop, "drop"); !errors.Is(err, errInterrupted) {
		t.Errorf("interrupted: got %v", err)
	}
}
