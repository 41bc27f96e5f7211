package stdout

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/cdc-relay/cdc-relay/sink"
)

// line is a record as it is printed; see the package's documentation.
type line struct {
	Topic       string   `json:"topic"`
	Partition   int32    `json:"partition"`
	Offset      int64    `json:"offset"`
	Timestamp   string   `json:"timestamp"`
	Key         *string  `json:"key"`
	KeyEncoding string   `json:"key_encoding,omitempty"`
	Headers     []header `json:"headers"`
	Value       any      `json:"value"` // json.RawMessage, string or nil
	Encoding    string   `json:"encoding,omitempty"`
	Tombstone   bool     `json:"tombstone,omitempty"`
}

type header struct {
	Key      string  `json:"key"`
	Value    *string `json:"value"`
	Encoding string  `json:"encoding,omitempty"`
}

// The encodings of what stands in a string.
const (
	asText   = "text" // said of values only: keys and headers are text by default
	asBase64 = "base64"
)

// appendLine appends the record as one line, its end included.
func appendLine(b []byte, r *sink.Record, partition int32, offset int64) []byte {
	l := line{
		Topic: r.Topic, Partition: partition, Offset: offset,
		Timestamp: time.UnixMilli(r.Timestamp).UTC().Format(time.RFC3339Nano),
		Headers:   make([]header, 0, r.Headers.Len()), Tombstone: r.Value == nil,
	}
	l.Key, l.KeyEncoding = printable(r.Key)
	for key, value := range r.Headers.All() {
		h := header{Key: key}
		h.Value, h.Encoding = printable(value)
		l.Headers = append(l.Headers, h)
	}
	switch text, encoding := printable(r.Value); {
	case text == nil:
	case encoding == "" && json.Valid(r.Value):
		l.Value = json.RawMessage(r.Value)
	case encoding == "":
		l.Value, l.Encoding = *text, asText
	default:
		l.Value, l.Encoding = *text, encoding
	}
	w := bytes.NewBuffer(b)
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(l); err != nil {
		panic(fmt.Sprintf("stdout: strings and valid JSON could not be encoded: %v", err))
	}
	return w.Bytes()
}

// printable is the bytes as a string; nil for nil.
func printable(b []byte) (text *string, encoding string) {
	if b == nil {
		return nil, ""
	}
	s := string(b)
	if !utf8.Valid(b) {
		s, encoding = base64.StdEncoding.EncodeToString(b), asBase64
	}
	return &s, encoding
}
