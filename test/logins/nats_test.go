package logins_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	client "github.com/nats-io/nats.go"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Breaks it catches: as with Redis, and questions to JetStream that no one may ask and that are waited for in silence.
// Seen to fail with the refusal of a question left to the time-out of its answer.
func TestSecuredNATS(t *testing.T) {
	harness.Full(t)
	t.Parallel() // most of it is waiting
	certificates := newPKI(t)
	p := &place{
		pki: certificates, page: "nats", section: "nats.tls", urlKey: "nats.url", passwordKey: "nats.password_file",
		tls: "tls", plain: "nats", topic: "outbox.event.order", refused: "Authorization Violation",
	}
	users := newUsers(t, p.block(t, "hocon"))
	server := harness.NATS(t, fmt.Sprintf("include %q", users.path(t)), fmt.Sprintf(
		"tls: {cert_file: %q, key_file: %q, ca_file: %q, verify: true}", certificates.server.CertFile,
		certificates.server.KeyFile, certificates.trusted.File))
	p.reread = func() { server.Kill9(); server.Start(t) }
	p.change = func(password string) {
		users.write(t, strings.Replace(users.text, firstPassword, password, 1))
		p.reread()
	}
	p.configure(t, server.Addr)
	own := certificates.trusted.Issue(t, "admin", time.Now().Add(time.Hour))
	nc, err := client.Connect("tls://"+server.Addr, client.RootCAs(certificates.trusted.File),
		client.ClientCert(own.CertFile, own.KeyFile), client.UserInfo("admin", "admin"))
	if err != nil {
		t.Fatal(err)
	}
	js, err := nc.JetStream()
	if err == nil {
		_, err = js.AddStream(&client.StreamConfig{Name: "events", Subjects: []string{"outbox.event.>"}})
	}
	if err != nil {
		t.Fatal(err)
	}
	nc.Close()
	p.judge(t)
	t.Run("Revoked", func(t *testing.T) {
		full := strings.Replace(users.text, firstPassword, p.secret, 1)
		p.revoked(t, func() { users.write(t, strings.Replace(full, `"outbox.event.>"`, `"other"`, 1)); p.reread() },
			func() { users.write(t, full); p.reread() }, "ermissions", p.topic)
	})
	lacking := map[string]string{ // the right, and which subject is told
		"outbox.event.>": p.topic, "$JS.API.INFO": "$JS.API.INFO", "$JS.API.STREAM.NAMES": "$JS.API.STREAM.NAMES",
		"$JS.API.STREAM.INFO.*": "$JS.API.STREAM.INFO.events", "$JS.API.STREAM.MSG.GET.*": "$JS.API.STREAM.MSG.GET.events",
		"$JS.API.CONSUMER.>": "$JS.API.CONSUMER.CREATE.events", "_INBOX.>": "_INBOX.>",
	}
	p.writePassword(t, firstPassword)
	users.write(t, users.without(slices.Sorted(maps.Keys(lacking))))
	p.reread()
	for i, subject := range slices.Sorted(maps.Keys(lacking)) {
		t.Run("Without "+subject, func(t *testing.T) {
			t.Parallel() // each waits for seconds
			q := &place{pki: p.pki, topic: p.topic, text: p.text, page: p.page, lacking: []string{"nats.username", user(i)}}
			q.wantLacking(t, "ermissions Violation", "nsc edit user", lacking[subject])
		})
	}
}

// users is the page's block, with an admin besides.
type users struct{ file, text string }

func newUsers(t *testing.T, block string) *users {
	t.Helper()
	u := &users{file: writeFile(t, t.TempDir()+"/users.conf", ""),
		text: strings.Replace(block, "users: [", "users: [\n    {user: admin, password: admin}", 1)}
	u.write(t, u.text)
	return u
}

// path is the file's as the server has it: from the directory of its configuration, which is beside the tests' own.
func (u *users) path(t *testing.T) string {
	t.Helper()
	path, err := filepath.Rel(filepath.Join(os.TempDir(), "server"), u.file)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func (u *users) write(t *testing.T, text string) {
	t.Helper()
	writeFile(t, u.file, text)
}

func user(i int) string { return fmt.Sprint("lacking", i) }

// without has a user besides for each of the rights, who lacks it.
func (u *users) without(rights []string) string {
	begin, end := strings.Index(u.text, "    {user: relay"), strings.LastIndex(u.text, "  ]\n}")
	text := u.text[:end]
	for i, right := range rights {
		mine := strings.Replace(u.text[begin:end], "user: relay", "user: "+user(i), 1)
		text += strings.Replace(mine, `"`+right+`"`, `"other"`, 1)
	}
	return text + u.text[end:]
}
