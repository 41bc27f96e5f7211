package logqueue

import (
	"io"
	"time"

	"github.com/rs/zerolog"

	"github.com/cdc-relay/cdc-relay/internal/plain"
)

// Console writes the JSON lines of a logger in a form for people. What they quote of rows, brokers and people cannot
// leave its line.
func Console(w io.Writer, coloured bool) io.Writer {
	return zerolog.ConsoleWriter{Out: w, NoColor: !coloured, TimeFormat: time.RFC3339, FormatPrepare: clean}
}

// clean makes the texts of a line, and of what is nested in it, plain.
func clean(fields map[string]any) error {
	for name, value := range fields {
		delete(fields, name)
		fields[plain.Text(name)] = cleaned(value)
	}
	return nil
}

func cleaned(value any) any {
	switch v := value.(type) {
	case string:
		return plain.Text(v)
	case []any:
		for i := range v {
			v[i] = cleaned(v[i])
		}
	case map[string]any:
		_ = clean(v)
	}
	return value
}
