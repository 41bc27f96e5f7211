package config

import (
	"strings"
	"testing"
)

// Breaks it catches: any form of password that reaches a message, also of a URL that is wrong. Seen to fail with the
// masking ended at the first @, and at the first /.
func TestPasswordsAreMasked(t *testing.T) {
	for in, want := range map[string]string{
		"postgres://app:hunter2@db:5432/app?sslmode=disable": "postgres://app:xxxxx@db:5432/app?sslmode=disable",
		"postgres://app:hunter2:@@db/app":                    "postgres://app:xxxxx@db/app",
		"postgres://app:hun/ter2@db/app":                     "postgres://app:xxxxx@db/app",
		"postgres://app:hun?ter2#@db/app":                    "postgres://app:xxxxx@db/app",
		"postgres://app:hun@ter/2@db/app":                    "postgres://app:xxxxx@db/app",
		"postgres://app:1/hunter2@db/app":                    "postgres://app:xxxxx@db/app",
		"postgres://:hunter2@db":                             "postgres://:xxxxx@db",
		"postgres://db/app?password=hunter2&user=a":          "postgres://db/app?password=xxxxx&user=a",
		"postgres://db/app?sslpassword=hunter2":              "postgres://db/app?sslpassword=xxxxx",
		"host=db password=hunter2 user=a":                    "host=db password=xxxxx user=a",
		`host=db PASSWORD = 'hunter2 it\'s' user=a`:          "host=db PASSWORD = xxxxx user=a",
		"host=db password='hunter2":                          "host=db password=xxxxx",
		"postgres://app@db:5432/app":                         "postgres://app@db:5432/app",
		"host=db user=app":                                   "host=db user=app",
	} {
		if got := MaskURL(in); got != want {
			t.Errorf("MaskURL(%q): got %q, want %q", in, got, want)
		}
	}
}

// Seen to fail with nothing masked.
func TestRedactedHidesAndLeavesTheOriginal(t *testing.T) {
	cfg := Default()
	cfg.Postgres.URL = "postgres://a:hunter2@h/d"
	cfg.Postgres.ReplicationURL = "host=h password=hunter2"
	r := cfg.Redacted()
	if strings.Contains(r.Postgres.URL+r.Postgres.ReplicationURL, "hunter2") {
		t.Errorf("got %q and %q, want no password", r.Postgres.URL, r.Postgres.ReplicationURL)
	}
	if !strings.Contains(cfg.Postgres.URL, "hunter2") || r.Postgres.Slot != cfg.Postgres.Slot {
		t.Errorf("got the original changed: %q, or other keys: %q", cfg.Postgres.URL, r.Postgres.Slot)
	}
}

// Seen to fail with only keys masked that are called password.
func TestPasswordKeysAreMaskedByName(t *testing.T) {
	if got := (Key{Name: "kafka.sasl.old_password"}).mask("hunter2"); got == "hunter2" {
		t.Errorf("got %q, want it masked", got)
	}
}
