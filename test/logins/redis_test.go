package logins_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Breaks it catches: a key of redis.tls that is not used, files that are read once, a right that the page leaves out or
// has too many, an error that does not say what to do, and a password in it. Seen to fail with the authorities of the
// system instead of the file's, with certificates that a server refuses told as errors of the network, and with a
// missing right told without its command.
func TestSecuredRedis(t *testing.T) {
	harness.Full(t)
	t.Parallel() // most of it is waiting
	certificates := newPKI(t)
	server := harness.SecuredRedis(t, certificates.server, certificates.trusted, "--requirepass", "the admin's")
	ask := func(words ...string) string {
		t.Helper()
		answer, err := server.Ask(append([]string{"--no-auth-warning", "-a", "the admin's"}, words...)...)
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
	rereads := 0
	for _, page := range []string{"redis-stream", "bullmq"} {
		t.Run(page, func(t *testing.T) {
			p := &place{
				pki: certificates, page: page, section: "redis.tls", urlKey: "redis.url", passwordKey: "redis.password_file",
				tls: "rediss", plain: "redis", topic: "outbox.event.order", refused: "WRONGPASS",
				reread: func() { // with any of its settings of TLS
					rereads++
					ask("CONFIG", "SET", "tls-session-cache-size", strconv.Itoa(rereads))
				},
				change: func(password string) { ask("ACL", "SETUSER", "relay", "resetpass", ">"+password) },
			}
			p.configure(t, server.Addr)
			p.lacking = []string{"redis.max_length", "1000"}
			grant := p.commands(t, "redis-cli")[0]
			ask("ACL", "SETUSER", "relay", "reset")
			ask(grant...)
			if page == "bullmq" {
				p.read = func(*testing.T) []string {
					return strings.Fields(ask("LRANGE", "bull:"+p.topic+":wait", "0", "-1"))
				}
			}
			p.judge(t)
			t.Run("Revoked", func(t *testing.T) {
				p.revoked(t, func() { ask("ACL", "SETUSER", "relay", "resetkeys") }, func() { ask(grant...) },
					"NOPERM", "ACL SETUSER relay")
			})
			p.fresh = 10 * events
			ask("HSET", "bull:"+p.topic+":meta", "concurrency", "5") // has the length of the active jobs asked for
			for _, right := range grant {
				// LRANGE is for what is read back after an answer was lost.
				if (right[0] == '+' || right[0] == '~') && (right != "+lrange") {
					t.Run("Without "+right, func(t *testing.T) {
						ask("SCRIPT", "FLUSH")
						ask("ACL", "SETUSER", "relay", "reset")
						ask("ACL", "SETUSER", "relay", ">"+p.secret)
						ask(slices.DeleteFunc(slices.Clone(grant), func(one string) bool { return one == right })...)
						p.wantLacking(t, "ACL SETUSER relay", strings.TrimSuffix(right, "*"))
					})
				}
			}
		})
	}
}
