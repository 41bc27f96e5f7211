package webhook

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/sink"
)

// The headers besides the record's. They and the record's are in small letters: the transport sends a POST again itself
// when it finds Idempotency-Key or X-Idempotency-Key under its canonical name, and no one would count that.
const (
	idHeader          = "webhook-id"
	timestampHeader   = "webhook-timestamp"
	signatureHeader   = "webhook-signature"
	idempotencyHeader = "idempotency-key"
	keyHeader         = "x-outbox-key"
	tombstoneHeader   = "x-outbox-tombstone"
	contentType       = "content-type"
)

// own are the names, in small letters, that no record can set: those above, and those by which HTTP itself works.
var own = map[string]bool{
	idHeader: true, timestampHeader: true, signatureHeader: true, idempotencyHeader: true, keyHeader: true,
	tombstoneHeader: true,
	"host":          true, "content-length": true, "transfer-encoding": true, "connection": true, "keep-alive": true,
	"proxy-connection": true, "proxy-authorization": true, "authorization": true, "te": true, "trailer": true,
	"upgrade": true, "expect": true, "accept-encoding": true, "user-agent": true, "content-encoding": true,
}

// ambient are names, in small letters, that servers, proxies and frameworks believe whoever sends them: who asks, from
// where, for what, and by which method. ambientPrefixes are prefixes of others. No record can set them.
var (
	ambient = map[string]bool{
		"cookie": true, "cookie2": true, "set-cookie": true, "forwarded": true, "via": true, "from": true,
		"origin": true, "referer": true, "range": true, "date": true, "cache-control": true, "pragma": true,
		"http2-settings": true,
		"x-http-method":  true, "x-http-method-override": true, "x-method-override": true, "x-original-method": true,
		"x-original-url": true, "x-original-host": true, "x-original-uri": true, "x-rewrite-url": true, "x-host": true,
		"x-real-ip": true, "x-client-ip": true, "x-cluster-client-ip": true, "x-remote-ip": true, "x-remote-addr": true,
		"x-originating-ip": true, "true-client-ip": true, "cf-connecting-ip": true, "fastly-client-ip": true,
		"client-ip": true, "remote-user": true, "x-remote-user": true, "x-authenticated-user": true,
		"x-csrf-token": true, "x-csrftoken": true, "x-xsrf-token": true, "x-requested-with": true,
		"x-accel-redirect": true, "x-sendfile": true, "proxy": true, "x-scheme": true, "x-url-scheme": true,
	}
	ambientPrefixes = []string{
		"x-forwarded", "x-auth-request-", "access-control-", "accept", "if-", "sec-", "proxy-",
		// what proxies that authenticate, or end TLS, say of the caller
		"x-amzn-oidc-", "x-ms-client-principal", "x-ms-token-", "x-goog-authenticated-user-", "x-goog-iap-", "x-appengine-",
		"x-envoy-", "x-webauth-", "x-ssl-client-", "ssl-client-", "x-client-cert", "x-middleware-",
	}
)

// refuses reports whether no record can set the header, whose name is in small letters.
func refuses(name string) bool {
	if own[name] || ambient[name] {
		return true
	}
	for _, prefix := range ambientPrefixes {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// fixedSize is the size of a request without key, headers and value.
const fixedSize = 512

// sizeOf bounds the record's size in a batch.
func sizeOf(r *sink.Record) int {
	return len(r.Key) + len(r.Value) + len(r.Headers.Block()) + fixedSize
}

// headers are those of the record and what identifies it. The reason says why it cannot be a request.
func (c Config) headers(r *sink.Record) (h http.Header, id string, reason *sink.Reason) {
	defer sink.Recover(&reason)
	h = make(http.Header, r.Headers.Len()+9)
	typed := false
	for name, value := range r.Headers.All() {
		if name == c.IDHeader {
			id = encode(value, true)
		}
		// Servers do not tell capitals from small letters, and drop names with underscores.
		name = strings.ToLower(strings.ReplaceAll(name, "_", "-"))
		if refuses(name) {
			continue
		}
		if !isToken(name) {
			return nil, "", invalidHeader(fmt.Sprintf("%.50q cannot be the name of an HTTP header", name))
		}
		if _, twice := h[name]; twice {
			return nil, "", invalidHeader(fmt.Sprintf(
				"two of its headers are %.50q to an HTTP server: capitals are small letters there, and _ is -", name))
		}
		encoded := strings.HasPrefix(name, "ce-")
		if n := len(value); n > 0 && !encoded && (blank(value[0]) || blank(value[n-1])) {
			return nil, "", invalidHeader(
				fmt.Sprintf("the value of header %.50q begins or ends with white space, which HTTP cuts off", name))
		}
		if i := bytes.IndexFunc(value, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }); i >= 0 {
			return nil, "", invalidHeader(
				fmt.Sprintf("the value of header %.50q has a control character at %d, which HTTP cannot carry", name, i))
		}
		text := string(value)
		if encoded {
			text = encode(value, false)
		}
		typed = typed || name == contentType
		h[name] = []string{text}
	}
	if id == "" {
		id = digest(r)
	}
	if r.Key != nil {
		h[keyHeader] = []string{encode(r.Key, false)}
	}
	switch {
	case r.Value == nil:
		h[tombstoneHeader] = []string{"true"}
	case !typed && c.ContentType != "":
		h[contentType] = []string{c.ContentType}
	}
	h[idHeader] = []string{id}
	h[idempotencyHeader] = []string{`"` + id + `"`}
	h["User-Agent"] = []string{c.UserAgent}
	return h, id, nil
}

func blank(c byte) bool { return c == ' ' || c == '\t' }

func invalidHeader(text string) *sink.Reason {
	return &sink.Reason{Class: outbox.Permanent, Code: "INVALID_HEADER", Text: text}
}

// isToken reports whether the name can be a header's (RFC 9110, section 5.6.2).
func isToken(name string) bool {
	for _, c := range []byte(name) {
		switch {
		case '0' <= c && c <= '9', 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0:
		default:
			return false
		}
	}
	return name != ""
}

// encode percent-encodes what a header cannot carry as it is, in the way of CloudEvents' HTTP binding (1.0, section
// 3.1.3.2): all but printable ASCII, and space, quote and percent. Of an id also the dot, which ends it in what is
// signed, and the backslash, which escapes in an Idempotency-Key.
func encode(value []byte, isID bool) string {
	plain := func(c byte) bool {
		return c > ' ' && c < 0x7f && c != '"' && c != '%' && (!isID || c != '.' && c != '\\')
	}
	clean := true
	for _, c := range value {
		clean = clean && plain(c)
	}
	if clean {
		return string(value)
	}
	const digits = "0123456789ABCDEF"
	b := make([]byte, 0, len(value)+16)
	for _, c := range value {
		if plain(c) {
			b = append(b, c)
		} else {
			b = append(b, '%', digits[c>>4], digits[c&0xf])
		}
	}
	return string(b)
}

// digest identifies a record that has no id: the same at each attempt.
func digest(r *sink.Record) string {
	sum := sha256.New()
	for _, part := range [...][]byte{[]byte(r.Topic), r.Key, r.Headers.Block(), r.Value} {
		_, _ = fmt.Fprintf(sum, "%d ", len(part))
		_, _ = sum.Write(part)
	}
	return hex.EncodeToString(sum.Sum(nil)[:16])
}

// body is a request's, until it is shut. The transport can go on reading when it has the answer, and the record's
// bytes are not ours any more by then.
type body struct {
	mu   sync.Mutex // guards what follows
	all  []byte
	read int
}

// Read implements [io.Reader].
func (b *body) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.all == nil {
		return 0, errShut
	}
	n := copy(p, b.all[b.read:])
	b.read += n
	if n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return n, nil
}

// Close implements [io.Closer].
func (b *body) Close() error { return nil }

// again is the body from its beginning.
func (b *body) again() (io.ReadCloser, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.read = 0
	return b, nil
}

func (b *body) shut() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all = nil
}

var errShut = errors.New("the request is over")

// request is the record as a request with that body, signed now.
func (e *endpoint) request(ctx context.Context, r *sink.Record, content *body) (*http.Request, *sink.Reason, error) {
	h, id, reason := e.driver.config.headers(r)
	if reason != nil {
		return nil, reason, nil
	}
	secrets, err := e.keys.secrets()
	if err != nil {
		return nil, nil, err
	}
	now := strconv.FormatInt(time.Now().Unix(), 10)
	h[timestampHeader] = []string{now}
	if signed := signature(secrets, id, now, r.Value); signed != "" {
		h[signatureHeader] = []string{signed}
	}
	q := &http.Request{
		Method: http.MethodPost, URL: e.url, Host: e.url.Host, Header: h, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Body: http.NoBody,
	}
	if e.user != nil {
		password, _ := e.user.Password()
		q.SetBasicAuth(e.user.Username(), password)
	}
	if len(r.Value) > 0 {
		q.ContentLength, q.Body = int64(len(r.Value)), content
		q.GetBody = content.again // lets the transport take another connection when it could write nothing to an old one
	}
	return q.WithContext(ctx), nil, nil
}
