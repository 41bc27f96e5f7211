package relay

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/rs/zerolog"
)

// slogWriter hands the lines of a zerolog.Logger to a slog.Logger. The relay logs changes, never events, so that reading each
// line once more costs nothing that counts.
type slogWriter struct{ to *slog.Logger }

// Write takes a line without a level.
func (w slogWriter) Write(line []byte) (int, error) { return w.WriteLevel(zerolog.InfoLevel, line) }

// WriteLevel takes a line: its fields become attributes, by their names.
func (w slogWriter) WriteLevel(level zerolog.Level, line []byte) (int, error) {
	ctx, severity := context.Background(), slogLevel(level)
	handler := w.to.Handler()
	if !handler.Enabled(ctx, severity) {
		return len(line), nil
	}
	var fields map[string]any
	if err := json.Unmarshal(line, &fields); err != nil {
		fields = map[string]any{zerolog.MessageFieldName: string(line)}
	}
	text, _ := fields[zerolog.MessageFieldName].(string)
	delete(fields, zerolog.MessageFieldName)
	delete(fields, zerolog.LevelFieldName)
	record := slog.NewRecord(time.Now(), severity, text, 0)
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		record.AddAttrs(slog.Any(name, fields[name]))
	}
	return len(line), handler.Handle(ctx, record)
}

func slogLevel(l zerolog.Level) slog.Level {
	switch {
	case l >= zerolog.ErrorLevel && l < zerolog.NoLevel:
		return slog.LevelError
	case l == zerolog.WarnLevel:
		return slog.LevelWarn
	case l <= zerolog.DebugLevel:
		return slog.LevelDebug
	}
	return slog.LevelInfo
}
