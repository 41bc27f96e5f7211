package logqueue

import (
	"bytes"
	"errors"
	"log/slog"
	"testing"
	"time"
)

// Breaks it catches: a message, a level or a field that gets lost between the relay's logger and the program's. Seen
// to fail with every level taken for info, and with the program's level not asked for.
func TestLogsReachTheProgramsLogger(t *testing.T) {
	var text bytes.Buffer
	withoutTime := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}
	handler := slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelInfo, ReplaceAttr: withoutTime})
	log, lines := ToSlog(slog.New(handler))
	log.Debug().Msg("not shown")
	log.Info().Msg("begins")
	log.Warn().Err(errors.New("broken")).Int("partition", 3).Msg("told")
	log.Error().Str("code", "SETUP").Msg("halted")
	lines.Flush(time.Minute)
	const want = "level=INFO msg=begins\nlevel=WARN msg=told error=broken partition=3\nlevel=ERROR msg=halted code=SETUP\n"
	if text.String() != want {
		t.Errorf("got %q, want %q", text.String(), want)
	}
}
