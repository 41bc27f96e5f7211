package logqueue

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

// Configured logs to standard error as the configuration says, by way of the lines that it returns.
func Configured(cfg config.Config) (zerolog.Logger, *Writer) {
	level, err := zerolog.ParseLevel(cfg.Log.Level)
	if err != nil {
		level = zerolog.InfoLevel // not a valid configuration
	}
	var w io.Writer = os.Stderr
	if cfg.Log.Format == config.LogConsole {
		w = Console(os.Stderr, true)
	}
	service := func(c zerolog.Context) zerolog.Context { return c.Timestamp().Str("service", cfg.Service) }
	lines := New(w).Reports(service)
	return service(zerolog.New(lines).Level(level).With()).Logger(), lines
}

// ToSlog logs to l, which decides about the level, by way of the lines that it returns: a handler may block. The relay
// logs changes, never events, so reading each line once more costs nothing that counts.
func ToSlog(l *slog.Logger) (zerolog.Logger, *Writer) {
	lines := New(slogWriter{l})
	return zerolog.New(lines), lines
}

// slogWriter hands the lines of a zerolog.Logger to a slog.Logger.
type slogWriter struct{ to *slog.Logger }

// Write takes a line without a level.
func (w slogWriter) Write(line []byte) (int, error) { return w.WriteLevel(zerolog.InfoLevel, line) }

// WriteLevel takes a line: its fields become attributes, by their names.
func (w slogWriter) WriteLevel(level zerolog.Level, line []byte) (int, error) {
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
	delete(fields, zerolog.TimestampFieldName) // the record has its own
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
