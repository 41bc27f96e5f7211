package config

import "testing"

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
		"postgres://app@srv:hunter2@db:5432/app":             "postgres://app@srv:xxxxx@db:5432/app",
		"postgres://app@srv:hun/ter2@db/app":                 "postgres://app@srv:xxxxx@db/app",
		"nats://a@h1:4222,b:hunter2@h2:4222":                 "nats://a@h1:4222,b:xxxxx@h2:4222",
		"nats://a@h1:4222,b@h2:4222":                         "nats://a@h1:4222,b@h2:4222",
		"redis://a@h1:6379,redis://b@h2:6379":                "redis://a@h1:6379,redis://b@h2:6379",
		"host=db password=hun&ter2 user=a":                   "host=db password=xxxxx user=a",
		`host=db password=hun\ ter2 user=a`:                  "host=db password=xxxxx user=a",
		`host=db password=hun\`:                              "host=db password=xxxxx",
		"host=db password=hun'ter2 user=a":                   "host=db password=xxxxx user=a",
		"host=db password='hun'ter2 user=a":                  "host=db password=xxxxx user=a",
		"postgres:/app:hunter2@db/app":                       "postgres:/app:xxxxx@db/app",
		"postgres//app:hun=ter2@db/app":                      "postgres//app:xxxxx@db/app",
		"postgres:app:hunt@er2@db/app":                       "postgres:xxxxx@db/app",
		"app:hunter2@db:5432/app":                            "app:xxxxx@db:5432/app",
		"localhost:5432":                                     "localhost:5432",
		"host=db user=app":                                   "host=db user=app",
	} {
		if got := MaskURL(in); got != want {
			t.Errorf("MaskURL(%q): got %q, want %q", in, got, want)
		}
	}
}
