package nats

import (
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	client "github.com/nats-io/nats.go"

	"github.com/cdc-relay/cdc-relay/internal/conditional"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/sink"
)

// Headers of ours besides the record's.
const (
	keyHeader       = "x-outbox-key"
	keyBase64Header = "x-outbox-key-base64"
	tombstoneHeader = "x-outbox-tombstone"
)

// Headers of the servers. Their names begin with serverPrefix.
const (
	serverPrefix       = "Nats-"
	statusHeader       = "Status"
	msgIDHeader        = "Nats-Msg-Id"
	expectStreamHeader = "Nats-Expected-Stream"
	expectSeqHeader    = "Nats-Expected-Last-Sequence"
	expectIDHeader     = "Nats-Expected-Last-Msg-Id"
	batchIDHeader      = "Nats-Batch-Id"
	batchSeqHeader     = "Nats-Batch-Sequence"
	batchCommitHeader  = "Nats-Batch-Commit"
)

const (
	// controlSize bounds the size of the server's headers, ours and the block's own lines.
	controlSize = 320
	// maxHeaders is the largest block of headers that a stream takes, in bytes.
	maxHeaders = 1<<16 - 1
	lineSize   = len(": \r\n")
)

// message is the record as a message without the chain's headers. The reason says why there can be none.
func message(r *sink.Record) (m *client.Msg, reason *sink.Reason) {
	defer sink.Recover(&reason)
	h := make(client.Header, r.Headers.Len()+6)
	size := controlSize + len(r.Key)
	for name, value := range r.Headers.All() {
		problem := headerProblem(name, value)
		if name == statusHeader && len(r.Value) == 0 {
			problem = "clients take a message without data for the server's own if it has a header Status"
		}
		if problem != "" {
			return nil, &sink.Reason{Class: outbox.Permanent, Code: "INVALID_HEADER",
				Text: "NATS cannot carry the header: " + problem}
		}
		size += len(name) + len(value) + lineSize
		h[name] = append(h[name], string(value))
	}
	if size > maxHeaders {
		return nil, &sink.Reason{
			Class: outbox.Permanent, Code: "HEADERS_TOO_LARGE",
			Text: fmt.Sprintf("the headers take %d bytes, NATS takes at most %d", size, maxHeaders),
		}
	}
	switch {
	case r.Key == nil:
	case plain(r.Key):
		h[keyHeader] = []string{string(r.Key)}
	default:
		h[keyBase64Header] = []string{base64.StdEncoding.EncodeToString(r.Key)}
	}
	if r.Value == nil {
		h[tombstoneHeader] = []string{"true"}
	}
	return &client.Msg{Subject: r.Topic, Header: h, Data: r.Value}, nil
}

// headerProblem explains why NATS cannot carry a header, or returns "".
func headerProblem(name string, value []byte) string {
	switch {
	case name == "" || strings.ContainsFunc(name, separates):
		return fmt.Sprintf("the name %.100q is not of visible ASCII characters other than %s", name, separators)
	case len(name) >= len(serverPrefix) && strings.EqualFold(name[:len(serverPrefix)], serverPrefix):
		return fmt.Sprintf("names such as %.100q are the server's", name)
	case strings.ContainsAny(string(value), "\r\n"):
		return fmt.Sprintf("the value of %.100q has a line end", name)
	case len(value) > 0 && (blank(value[0]) || blank(value[len(value)-1])):
		return fmt.Sprintf("the value of %.100q begins or ends with white space, which clients cut off", name)
	}
	return ""
}

// separators are refused by the client in names, beyond the colon: at one of them it sends nothing.
const separators = `"(),/:;<=>?@[\]{}`

func separates(c rune) bool { return c <= ' ' || c >= 0x7f || strings.ContainsRune(separators, c) }

func blank(c byte) bool { return c == ' ' || c == '\t' }

// plain reports whether the key can stand in a header as it is.
func plain(key []byte) bool {
	return utf8.Valid(key) && len(strings.TrimSpace(string(key))) == len(key) &&
		!strings.ContainsFunc(string(key), func(c rune) bool { return c < ' ' || c == 0x7f })
}

// sizeOf bounds the record's size in a message.
func sizeOf(r *sink.Record) int {
	size := controlSize + len(r.Key)*4/3 + len(r.Value) + len(r.Topic)
	for name, value := range r.Headers.All() {
		size += len(name) + len(value) + lineSize
	}
	return size
}

// digestOf identifies the message by what does not differ between two relays that send the same event.
func digestOf(subject string, headers client.Header, data []byte) *conditional.Digest {
	digest := conditional.NewDigest()
	digest.Add([]byte(subject))
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		if strings.HasPrefix(name, serverPrefix) {
			continue
		}
		for _, value := range headers[name] {
			digest.AddHeader(name, []byte(strings.TrimSpace(value)))
		}
	}
	if data == nil {
		data = []byte{} // what is read back does not differ
	}
	digest.Add(data)
	return digest
}
