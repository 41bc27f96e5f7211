package embedded_test

import (
	"os"
	"testing"

	"github.com/cdc-relay/cdc-relay/test/embedded"
)

// TestDownloadedPostgresRuns is for machines with network access, and by hand: EMBEDDED_TEST_DOWNLOAD=18 names the
// major version to get. Breaks it catches: a bundle that is unpacked where, or so that, the server cannot use it. Seen
// to fail with the unpacked programs moved to another place.
func TestDownloadedPostgresRuns(t *testing.T) {
	version := os.Getenv("EMBEDDED_TEST_DOWNLOAD")
	if version == "" {
		t.Skip("set EMBEDDED_TEST_DOWNLOAD to a major version that is not installed here to test a download")
	}
	t.Setenv("CI", "true") // it was asked for by name: a server that is not there is no reason to skip
	for _, cache := range []string{"cold", "warm"} {
		t.Run(cache, func(t *testing.T) {
			p := start(t, embedded.PostgresConfig{Version: version})
			if got := query(t, connect(t, p),
				"SELECT current_setting('server_version_num')::int / 10000 || ''"); got != version {
				t.Errorf("major version: got %s, want %s", got, version)
			}
		})
	}
}
