// Package logs makes the loggers that a relay may log to.
package logs

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"github.com/cdc-relay/cdc-relay/config"
)

// New logs to standard error as the configuration says.
func New(cfg config.Config) zerolog.Logger {
	level, err := zerolog.ParseLevel(cfg.Log.Level)
	if err != nil {
		level = zerolog.InfoLevel // not a valid configuration
	}
	var w io.Writer = os.Stderr
	if cfg.Log.Format == config.LogConsole {
		w = zerolog.ConsoleWriter{Out: os.Stderr, TimeFormat: time.RFC3339}
	}
	return zerolog.New(w).Level(level).With().Timestamp().Str("service", cfg.Service).Logger()
}

// To logs to l, which decides about the level. The relay logs changes, never events, so that reading each line once
// more costs nothing that counts.
func To(l *slog.Logger) zerolog.Logger { return zerolog.New(writer{l}) }

// writer hands the lines of a zerolog.Logger to a slog.Logger.
type writer struct{ to *slog.Logger }

// Write takes a line without a level.
func (w writer) Write(line []byte) (int, error) { return w.WriteLevel(zerolog.InfoLevel, line) }

// WriteLevel takes a line: its fields become attributes, by their names.
func (w writer) WriteLevel(level zerolog.Level, line []byte) (int, error) {
	ctx, severity := context.Background(), levelOf(level)
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

func levelOf(l zerolog.Level) slog.Level {
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
