package registry

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/config"
)

// A subject comes of the columns of rows, so it can be anything. Breaks it catches: one that names another path, or
// that a server or a proxy cannot read, waited for like a registry that is away, which stops the stream forever; a
// registry at another address taken for one that has no subjects. Seen to fail without a look at the name, with each
// refusal taken for an outage, and with each taken for a lack.
func TestASubjectThatTheRegistryCannotReadIsALackOfItsOwn(t *testing.T) {
	const subject, path = "a/b", "GET /api/subjects/a%2Fb/versions/latest"
	for _, name := range []string{"", ".", ".."} {
		synctest.Test(t, func(t *testing.T) {
			r := &troubled{status: 503}
			x := r.open(t, nil)
			wantLack(t, x, name, "cannot have that name", "correct registry.subject")
			if asked := r.questions(); len(asked) != 0 {
				t.Errorf("%q: got %q asked, want nothing", name, asked)
			}
		})
	}
	for refused, lacks := range map[string]bool{
		"400 Ambiguous URI path separator": true, "414 URI too long": true, "431 header too large": true,
		`404 {"error_code": 404, "message": "HTTP 404 Not Found"}`: true, "404 <html>": true,
		"403 no": false, "429 slower": false, "502 no": false,
	} {
		synctest.Test(t, func(t *testing.T) {
			r := &troubled{subjects: map[string]string{path: refused, "GET /api/subjects": `["t-value"]`}}
			x := r.open(t, nil)
			if lacks {
				wantLack(t, x, subject, "the registry refuses the name", "correct registry.subject")
			} else {
				wantWait(t, x, subject, "")
			}
			r.set(0, "GET /api/subjects", "404 <html>")
			wantWait(t, r.open(t, nil), subject, map[bool]string{true: "check registry.url"}[strings.HasPrefix(refused, "404")])
		})
	}
	synctest.Test(t, func(t *testing.T) {
		r := &troubled{subjects: map[string]string{"GET /api/subjects": "[]",
			"GET /api/subjects/a%2Fb/versions/1": "400 Ambiguous URI path separator",
			"GET /api/subjects/t-value/versions/latest": answerOf(1, 1, numbered,
				`, "references": [{"name": "x", "subject": "a/b", "version": 1}]`)}}
		wantLack(t, r.open(t, nil), "t-value", "refers to version 1 of a/b", "register that")
	})
}

func wantLack(t *testing.T, x *Registry, subject, what, fix string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	told, err := await(ctx, x, subject)
	_, why := x.Append(nil, []byte(subject), nil, []byte(`{}`))
	synctest.Wait()
	if err != nil || !isLack(why) || !strings.Contains(why.Error(), what) || !strings.Contains(why.Error(), fix) {
		t.Errorf("%q: got %v after %v %q, want a lack: %q, %q", subject, why, err, told, what, fix)
	}
	if strings.Contains(why.Error(), "registry.url") {
		t.Errorf("%q: got %v, want nothing of an address that is right", subject, why)
	}
}

func wantWait(t *testing.T, x *Registry, subject, said string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	told, err := await(ctx, x, subject)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(told[0], said) {
		t.Errorf("%q: got %v after %.200q, want that it is waited for, and %q", subject, err, told, said)
	}
}

// Breaks it catches: a schema that lacks the record of an event, believed for as long as one that serves all, which may
// be days; a version that never changes, asked for all the time. Seen to fail with what lacks a record kept like any
// other, and with the version's case behind it.
func TestASchemaThatLacksTheRecordIsAskedForAgainSoon(t *testing.T) {
	const other = `[{"type": "record", "name": "N", "fields": []}, {"type": "record", "name": "O", "fields": []}]`
	for version, again := range map[string]bool{config.LatestVersion: true, "1": false} {
		synctest.Test(t, func(t *testing.T) {
			path := "GET /api/subjects/t-value/versions/" + version
			r := &troubled{subjects: map[string]string{path: answerOf(1, 1, numbered)}}
			x := r.open(t, func(c *config.Config) {
				c.Registry.Version, c.Registry.CacheTTL = version, config.Duration(24*time.Hour)
			})
			if _, err := await(t.Context(), x, "t-value"); err != nil {
				t.Fatal(err)
			}
			try := func() error {
				_, err := x.Append(nil, []byte("t-value"), []byte("O"), []byte(`{}`))
				synctest.Wait()
				return err
			}
			if err := try(); !isLack(err) {
				t.Fatalf("got %v, want that the schema lacks the record", err)
			}
			r.set(0, path, answerOf(2, 2, other))
			time.Sleep(2 * lackTTL)
			if first, second := try(), try(); !isLack(first) || (second == nil) != again {
				t.Errorf("version %s, two looks later: got %v and %v, want it used: %t", version, first, second, again)
			}
			asked := len(r.questions())
			time.Sleep(time.Hour)
			_ = try()
			if n := len(r.questions()) - asked; n != 0 {
				t.Errorf("version %s, an hour later: got %d more questions, want 0", version, n)
			}
		})
	}
}
