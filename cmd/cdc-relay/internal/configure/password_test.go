package configure

import (
	"strings"
	"testing"
)

// Breaks it catches: a password in a file that many can read, and a URL that means something else afterwards. Seen to
// fail with URLs as they are, with the option in the query left in, with each address split at its commas, with the
// mask not asked whether anything is left, with further hosts of a list left as they are, and with a backslash that
// keeps no space in a value.
func TestPasswordsAreTakenOutOfAddresses(t *testing.T) {
	for _, c := range []struct {
		address string
		list    bool
		want    string // empty: it is not clean
		had     bool
	}{
		{address: "postgres://relay@db:5432/shop?options=-c%20a=b", want: "postgres://relay@db:5432/shop?options=-c%20a=b"},
		{address: "postgres://relay@a:5432,b:5432/shop?target_session_attrs=read-write",
			want: "postgres://relay@a:5432,b:5432/shop?target_session_attrs=read-write"},
		{address: "amqp://guest@127.0.0.1:5672/", want: "amqp://guest@127.0.0.1:5672/"},
		{address: "postgres://relay:planted@db/shop?sslmode=verify-full",
			want: "postgres://relay@db/shop?sslmode=verify-full", had: true},
		{address: "postgres://db/shop?user=relay&password=planted", want: "postgres://db/shop?user=relay", had: true},
		{address: "postgres://relay:planted@db/shop", want: "postgres://relay@db/shop", had: true},
		{address: "postgres://relay:plan,ted@db/shop", want: "postgres://relay@db/shop", had: true},
		{address: "postgres://relay:plan,planted@a:5432,b:5432/shop", want: "postgres://relay@a:5432,b:5432/shop", had: true},
		{address: "postgres://relay@10.0.0.1:5432,10.0.0.2:5432/shop?password=planted",
			want: "postgres://relay@10.0.0.1:5432,10.0.0.2:5432/shop", had: true},
		{address: "postgres://relay@db_1,db_2/shop?sslpassword=planted&sslmode=require",
			want: "postgres://relay@db_1,db_2/shop?sslmode=require", had: true},
		{address: "postgres://relay@[::1]:5432,[::2]:5432/shop?password=planted"},
		{address: "postgres://relay@db/shop?app.password=planted"},
		{address: "postgres://relay@db/shop?PASSWORD=planted"},
		{address: "postgres://relay@db/shop?password=planted;a"},
		{address: "postgres://relay:plan/ted@db/shop"},
		{address: `host=db password=plan\ ted user=relay`, want: "host=db user=relay", had: true},
		{address: `host=db password = 'planted it\'s' user=relay`, want: "host=db user=relay", had: true},
		{address: "password=planted host=db", want: "host=db", had: true},
		{address: "host=db user=relay password='planted it' dbname=shop", want: "host=db user=relay dbname=shop", had: true},
		{address: "host=db user=relay", want: "host=db user=relay"},
		{address: "host=db user=relay ", want: "host=db user=relay"},

		{address: "nats://a:4222,b:4222", list: true, want: "nats://a:4222,b:4222"},
		{address: "nats://r:planted@a:4222,nats://r:planted@b:4222", list: true,
			want: "nats://r@a:4222,nats://r@b:4222", had: true},
		{address: "nats://r:planted@a:4222,r:planted@b_1:4222", list: true, want: "nats://r@a:4222,r@b_1:4222", had: true},
		{address: "nats://r@a:4222,r:planted@b:4222", list: true, want: "nats://r@a:4222,r@b:4222", had: true},
		{address: "nats://r:plan,ted@a:4222", list: true},
		{address: "nats://r:4711,ted@a:4222", list: true}, // 4711 could be a port
	} {
		got, had, clean := withoutPassword(c.address, c.list)
		if clean != (c.want != "") || clean && (got != c.want || had != c.had) || strings.Contains(got, "ted") {
			t.Errorf("%s: got %q, had %t, clean %t, want %q, had %t", c.address, got, had, clean, c.want, c.had)
		}
	}
}
