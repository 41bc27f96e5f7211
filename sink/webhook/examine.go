package webhook

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// anyTopic stands for topics whose names are not known yet.
const anyTopic = "{topic}"

// Examine asks each endpoint by HEAD, which delivers nothing: any answer will do. The text says what was found. Topic
// is the only one that there is, or empty. Risky says that events are not signed.
func (d *Driver) Examine(ctx context.Context, topic string) (text string, risky bool, err error) {
	topics := slices.Sorted(maps.Keys(d.config.Endpoints))
	if topic != "" {
		topics = []string{topic}
	} else if d.config.URL != "" {
		topics = append(topics, anyTopic)
	}
	var found []string
	for _, topic := range topics {
		e := d.newEndpoint(topic)
		if e.problem != nil {
			return "", false, e.problem
		}
		one, signed, err := e.examine(ctx)
		if err != nil {
			return "", false, fmt.Errorf("%s: %w", e.where(), err)
		}
		risky = risky || !signed
		found = append(found, e.where()+one)
	}
	return strings.Join(found, "; "), risky, nil
}

func (e *endpoint) examine(ctx context.Context) (text string, signed bool, err error) {
	how, signed := "events are signed by the secret of their topic", true
	if !strings.Contains(e.keys.file, anyTopic) {
		secrets, err := e.keys.secrets()
		if err != nil {
			return "", false, err
		}
		if how = fmt.Sprintf("events are signed by %d secrets", len(secrets)); len(secrets) == 0 {
			how, signed = "events are NOT signed: set webhook.secret_file", false
		}
	}
	ctx, cancel := context.WithTimeout(ctx, e.driver.config.Timeout)
	defer cancel()
	q := &http.Request{Method: http.MethodHead, URL: e.url, Host: e.url.Host, Header: http.Header{}}
	answer, err := e.driver.transport.RoundTrip(q.WithContext(ctx))
	if err != nil {
		return "", false, err
	}
	defer answer.Body.Close()
	return fmt.Sprintf(" answers (%d to HEAD); %s", answer.StatusCode, how), signed, nil
}
