package main

import (
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/internal/store"
)

// unnamed are services whose slot and service nothing names.
func unnamed(t *testing.T) services {
	t.Helper()
	s := newServices(t, orderTopic)
	s.environ = slices.DeleteFunc(s.environ, func(pair string) bool {
		return strings.HasPrefix(pair, "CDC_RELAY_POSTGRES_SLOT=")
	})
	return s
}

const oneOrder = `INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload)
 VALUES ('order', '42', 'made', '{"n": 1}')`

// Every command and the relay itself must find the same slot, whatever another database of the server has. Breaks it
// catches: a slot that two databases want, a command that looks at another slot than the relay streams from.
func TestDatabasesOfOneServerNeedNoNames(t *testing.T) {
	t.Parallel()
	both := []services{unnamed(t), unnamed(t)}
	var relays []*running
	for _, s := range both {
		slot := store.DefaultSlot(s.pg.Database)
		cdcRelay(t, s.environ, "init").want(t, exitDone, []string{slot + " created"}, nil)
		cdcRelay(t, s.environ, "check").want(t, exitDone, []string{"slot " + slot, "named for the database"}, nil)
		r := startRelay(t, s.environ)
		r.awaitStatus(t, `"role": "active"`)
		r.awaitStatus(t, `"slot": "`+slot+`"`)
		relays = append(relays, r)
	}
	for _, s := range both {
		s.pg.Exec(t, oneOrder)
	}
	for i, s := range both {
		slot := store.DefaultSlot(s.pg.Database)
		service := strings.Replace(slot, "cdc_relay_", "cdc-relay-", 1)
		settled(t, s.pg, "1")
		relays[i].awaitStatus(t, `"service": "`+service+`"`)
		file := newFile(t)
		for _, c := range []struct {
			args []string
			want string
		}{
			{[]string{"slot", "status"}, slot}, {[]string{"reconcile"}, ""}, {[]string{"verify"}, ""},
			{[]string{"find", "--aggregate", "order/42"}, "published"}, {[]string{"adopt", "--dry-run"}, ""},
			{[]string{"config", "init", "--write", file}, "written"}, {[]string{"pause"}, ""}, {[]string{"resume"}, ""},
		} {
			if c.args[0] == "adopt" {
				cdcRelay(t, s.environ, c.args...).want(t, exitFailed, nil, []string{slot})
				continue
			}
			cdcRelay(t, s.environ, c.args...).want(t, exitDone, []string{c.want}, nil)
		}
		for _, want := range []string{"slot: " + slot, "The slot exists", "service: " + service} {
			if text := contentOf(t, file); !strings.Contains(text, want) {
				t.Errorf("config init wrote no %q:\n%s", want, text)
			}
		}
		if code := relays[i].stop(t, syscall.SIGTERM); code != exitDone {
			t.Errorf("got exit code %d after SIGTERM; log:\n%s", code, relays[i].log)
		}
		if want := `"service":"` + service + `"`; !strings.Contains(relays[i].log.String(), want) {
			t.Errorf("the log lacks %s:\n%s", want, relays[i].log)
		}
	}
}

// An installation from before slots were named for databases goes on with its slot, also when that was lost.
func TestSlotOfTheFormerDefaultIsKept(t *testing.T) {
	s := unnamed(t)
	former := append(slices.Clone(s.environ), "CDC_RELAY_POSTGRES_SLOT=cdc_relay")
	cdcRelay(t, former, "init").want(t, exitDone, nil, nil)
	drop := func() {
		s.pg.Exec(t, `SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots
 WHERE slot_name = 'cdc_relay' AND database = current_database()`)
	}
	for _, lost := range []bool{false, true} {
		if lost {
			drop()
		}
		r := startRelay(t, s.environ)
		r.awaitStatus(t, `"role": "active"`)
		r.awaitStatus(t, `"slot": "cdc_relay"`)
		r.awaitStatus(t, `"service": "cdc-relay"`)
		if code := r.stop(t, syscall.SIGTERM); code != exitDone {
			t.Errorf("got exit code %d after SIGTERM; log:\n%s", code, r.log)
		}
	}
}

// Breaks it catches: a start that ends, or that no probe can ask, because no database could say which slot is its own;
// one that goes on with a slot that it has not asked for.
func TestStartWaitsForTheDatabaseThatNamesItsSlot(t *testing.T) {
	t.Parallel()
	s := unnamed(t)
	cdcRelay(t, s.environ, "init").want(t, exitDone, nil, nil)
	away, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer away.Close()
	coming := make(chan struct{})
	at, err := pgconn.ParseConfig(s.pg.URL)
	if err != nil {
		t.Fatal(err)
	}
	to := net.JoinHostPort(at.Host, strconv.Itoa(int(at.Port)))
	url := strings.Replace(s.pg.URL, to, away.Addr().String(), 1)
	go serveFrom(away, coming, to)
	r := startRelay(t, append(s.environ, "CDC_RELAY_POSTGRES_URL="+url))
	for path, want := range map[string]int{"/livez": http.StatusOK, "/readyz": http.StatusServiceUnavailable,
		"/api/v1/status": http.StatusServiceUnavailable} {
		response, err := http.Get("http://" + r.address + path)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(response.Body)
		response.Body.Close()
		if response.StatusCode != want || path == "/readyz" && !strings.Contains(string(body), "waiting for the database") {
			t.Errorf("%s without a database: got %d %s, want %d", path, response.StatusCode, body, want)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	close(coming)
	r.awaitStatus(t, `"slot": "`+store.DefaultSlot(s.pg.Database)+`"`)
	r.awaitStatus(t, `"role": "active"`)
	if code := r.stop(t, syscall.SIGTERM); code != exitDone {
		t.Errorf("got exit code %d after SIGTERM; log:\n%s", code, r.log)
	}
}

// serveFrom closes what it accepts, and once it comes joins each connection to the address.
func serveFrom(l net.Listener, coming <-chan struct{}, to string) {
	for {
		client, err := l.Accept()
		if err != nil {
			return
		}
		select {
		case <-coming:
			go func() {
				defer client.Close()
				server, err := net.Dial("tcp", to)
				if err != nil {
					return
				}
				defer server.Close()
				go func() { _, _ = io.Copy(server, client) }()
				_, _ = io.Copy(client, server)
			}()
		default:
			_ = client.Close()
		}
	}
}

func TestDefaultSlotIsOneThatPostgresTakes(t *testing.T) {
	long := strings.Repeat("a", 63)
	seen := map[string]string{}
	for _, database := range []string{"app", "App", "tenant-42", "tenant_42", "tenant.42", "größe", long, long[:53],
		long[:54], "1", "b" + long[1:]} {
		slot := store.DefaultSlot(database)
		if strings.Trim(slot, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" || len(slot) > 63 || seen[slot] != "" {
			t.Errorf("%s: got the slot %q, want 1 to 63 of a-z, 0-9 and _, and not that of %q", database, slot, seen[slot])
		}
		seen[slot] = database
	}
	if got := store.DefaultSlot("app"); got != "cdc_relay_app" {
		t.Errorf("got %q, want cdc_relay_app", got)
	}
}
