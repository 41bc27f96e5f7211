package web_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/cdc-relay/cdc-relay/internal/web"
)

// Break caught: a token that can be guessed, without a word at the start; a warning that shows it; one of a long one.
func TestShortTokenIsWarnedOf(t *testing.T) {
	t.Parallel()
	for token, warned := range map[string]bool{planted: true, strings.Repeat("5", 32): false} {
		var log bytes.Buffer
		server, err := web.Open(web.Config{Address: "127.0.0.1:0", TokenFile: tokenFile(t, token),
			Logger: zerolog.New(&log)})
		if err != nil {
			t.Fatal(err)
		}
		server.WarnOfToken()
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		said := log.String()
		if strings.Contains(said, "shorter than 32 bytes") != warned || strings.Contains(said, token) {
			t.Errorf("token of %d bytes: got %q, want a warning %v, without the token", len(token), said, warned)
		}
	}
}
