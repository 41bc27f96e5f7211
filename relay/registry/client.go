package registry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/access/certs"
	"github.com/cdc-relay/cdc-relay/internal/access/secret"
)

const (
	contentType = "application/vnd.schemaregistry.v1+json"
	answerMost  = 16 << 20 // bytes
	saidMost    = 300      // bytes of an answer in an error

	dialTimeout = 3 * time.Second
	idleTimeout = 30 * time.Second
)

// Codes and statuses of Confluent's API ("Schema Registry API Reference", Errors).
const (
	noSubject = 40401
	noVersion = 40402
	noSchema  = 40403

	incompatible  = http.StatusConflict
	unprocessable = http.StatusUnprocessableEntity
)

// registered is a schema as the registry has it.
type registered struct {
	ID         int        `json:"id,omitempty"`
	Version    int        `json:"version,omitempty"`
	Schema     string     `json:"schema"`
	Type       string     `json:"schemaType,omitempty"` // "": AVRO
	References []refersTo `json:"references,omitempty"`
}

func (r *registered) kind() string {
	if r.Type == "" {
		return "AVRO"
	}
	return r.Type
}

// refersTo is another schema that one uses under a name.
type refersTo struct {
	Name    string `json:"name"`
	Subject string `json:"subject"`
	Version int    `json:"version"`
}

// answerError is an answer that says no, in the registry's own form.
type answerError struct {
	Status  int    `json:"-"`
	Code    int    `json:"error_code"`
	Message string `json:"message"`
	asked   string
	hint    string // where a person looks
}

func (e *answerError) Error() string {
	return fmt.Sprintf("%s answered %d %s: %s%s", e.asked, e.Status, http.StatusText(e.Status), e.Message, e.hint)
}

// isMissing reports whether the registry has no such subject, version or schema.
func isMissing(err error) bool {
	said, is := errors.AsType[*answerError](err)
	return is && said.Status == http.StatusNotFound &&
		(said.Code == noSubject || said.Code == noVersion || said.Code == noSchema)
}

// client asks a registry. It follows no redirect: user and password are for the servers that were named.
type client struct {
	urls     []string
	good     atomic.Int32 // which of them answered last
	username string
	password *secret.Source
	token    *secret.Source
	timeout  time.Duration
	http     *http.Client
}

func newClient(c config.Registry) (*client, error) {
	transport, err := transportFor(c.TLS)
	if err != nil {
		return nil, err
	}
	k := &client{username: c.Username, password: secret.Of("registry", c.PasswordFile, c.PasswordCommand),
		timeout: time.Duration(c.Timeout), http: &http.Client{Transport: transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
	switch {
	case len(c.TokenCommand) > 0:
		k.token = secret.Command("registry.token_command", c.TokenCommand)
	case c.TokenFile != "":
		k.token = secret.File("registry.token_file", c.TokenFile)
	}
	for one := range strings.SplitSeq(c.URL, ",") {
		k.urls = append(k.urls, strings.TrimRight(strings.TrimSpace(one), "/"))
	}
	return k, nil
}

func transportFor(c config.CertFiles) (*http.Transport, error) {
	t := &http.Transport{Proxy: http.ProxyFromEnvironment, IdleConnTimeout: idleTimeout, MaxIdleConnsPerHost: askersMost}
	files := certs.Files{CAFile: c.CAFile, CertFile: c.CertFile, KeyFile: c.KeyFile,
		Names: certs.ByURL("registry", "registry.tls", "registry.url")}
	return t, files.Dress(t, dialTimeout)
}

func subjectPath(subject string) string { return "/subjects/" + url.PathEscape(subject) }

// version is a version of the subject: latest, or a number.
func (k *client) version(ctx context.Context, subject, version string) (*registered, error) {
	found := new(registered)
	return found, k.ask(ctx, http.MethodGet, subjectPath(subject)+"/versions/"+version, nil, found)
}

// lookUp is the subject's version with this schema.
func (k *client) lookUp(ctx context.Context, subject string, s registered) (*registered, error) {
	found := new(registered)
	return found, k.ask(ctx, http.MethodPost, subjectPath(subject), s, found)
}

// register adds a version with this schema to the subject.
func (k *client) register(ctx context.Context, subject string, s registered) (*registered, error) {
	made := new(registered)
	return made, k.ask(ctx, http.MethodPost, subjectPath(subject)+"/versions", s, made)
}

// Ping asks for the registry's subjects, and ignores them.
func (r *Registry) Ping(ctx context.Context) error {
	var subjects []string
	return r.client.ask(ctx, http.MethodGet, "/subjects", nil, &subjects)
}

// ask asks one server after the other, that which answered last first, until one answers.
func (k *client) ask(ctx context.Context, method, path string, body, into any) (err error) {
	var text []byte
	if body != nil {
		if text, err = json.Marshal(body); err != nil {
			return fmt.Errorf("write a request to the registry: %w", err)
		}
	}
	first := int(k.good.Load())
	for i := range k.urls {
		at := (first + i) % len(k.urls)
		err = k.askOne(ctx, method, k.urls[at]+path, text, into)
		if said, is := errors.AsType[*answerError](err); err == nil || is && said.Status < http.StatusInternalServerError {
			k.good.Store(int32(at))
			return err
		}
	}
	return err
}

func (k *client) askOne(ctx context.Context, method, at string, body []byte, into any) error {
	ctx, cancel := context.WithTimeoutCause(ctx, k.timeout, fmt.Errorf("no answer within registry.timeout %v", k.timeout))
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, at, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("ask the registry: %w", err)
	}
	request.Header.Set("Accept", contentType+", application/json;q=0.9")
	if body != nil {
		request.Header.Set("Content-Type", contentType)
	}
	if err := k.sign(ctx, request); err != nil {
		return err
	}
	asked := method + " " + config.MaskURL(at)
	response, err := k.http.Do(request)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if failed, is := errors.AsType[*url.Error](err); is {
			err = failed.Err // which names the URL, and its password, once more
		}
		return fmt.Errorf("%s: %w", asked, err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, answerMost))
	if err != nil {
		return fmt.Errorf("%s: read the answer: %w", asked, err)
	}
	if response.StatusCode == http.StatusUnauthorized {
		k.refused()
	}
	if response.StatusCode != http.StatusOK {
		return refusal(asked, response.StatusCode, answer)
	}
	if err := json.Unmarshal(answer, into); err != nil {
		return fmt.Errorf("%s: the answer is not a schema registry's; check registry.url: %w", asked, err)
	}
	return nil
}

// refusal makes an error of an answer that is not OK; where a person must act, it names the key to look at.
func refusal(asked string, status int, answer []byte) error {
	e := &answerError{Status: status, asked: asked}
	if json.Unmarshal(answer, e) != nil || e.Message == "" {
		e.Code, e.Message = 0, string(answer)
	}
	e.Message = oneLine(errors.New(e.Message[:min(len(e.Message), saidMost)]))
	switch {
	case status == http.StatusUnauthorized:
		e.hint = "; check registry.username and its password, or the token"
	case status == http.StatusForbidden:
		e.hint = "; grant the login to read the subject, or to register it"
	case status == http.StatusNotFound && !isMissing(e), status >= 300 && status < 400:
		e.hint = "; check registry.url, which may need a path"
	}
	return e
}

// refused has another password or token asked for next time, where that can be.
func (k *client) refused() {
	for _, source := range []*secret.Source{k.token, k.password} {
		if source != nil {
			source.Refused()
		}
	}
}

// sign adds the login to a request.
func (k *client) sign(ctx context.Context, request *http.Request) error {
	switch {
	case k.token != nil:
		token, err := k.token.Read(ctx)
		if err != nil {
			return err
		}
		request.Header.Set("Authorization", "Bearer "+token)
	case k.username != "":
		password, err := k.password.Read(ctx)
		if err != nil {
			return err
		}
		request.SetBasicAuth(k.username, password)
	}
	return nil
}

// shown is a URL of the first server, for people.
func (k *client) shown(path string) string {
	u, err := url.Parse(k.urls[0] + path)
	if err != nil {
		return config.MaskURL(k.urls[0] + path)
	}
	u.User = nil
	return u.String()
}
