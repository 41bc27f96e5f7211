package web_test

import (
	"bufio"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"
)

// Breaks it catches: a page whose code is inline or comes from elsewhere, a policy that would allow it (seen to fail
// with unsafe-inline in it), a file served as something else, one that is sent again though the browser has it.
func TestConsoleLoadsItsOwnFilesOnly(t *testing.T) {
	t.Parallel()
	s, _ := newSite(t)
	code, index, header := s.ask(http.MethodGet, "/")
	policy := header.Get("Content-Security-Policy")
	if code != http.StatusOK || !strings.HasPrefix(header.Get("Content-Type"), "text/html") ||
		strings.Contains(policy, "unsafe") ||
		!strings.Contains(policy, "default-src 'none'") || !strings.Contains(policy, "frame-ancestors 'none'") {
		t.Errorf("/: got %d, headers %v; want a page with a closed policy", code, header)
	}
	for _, forbidden := range []string{"<style", "style=", "onclick", "://", "<script>"} {
		if strings.Contains(index, forbidden) {
			t.Errorf("/: contains %q", forbidden)
		}
	}
	kinds := map[string]string{".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
	found := 0
	for part := range strings.SplitSeq(index, `"`) {
		if !strings.HasPrefix(part, "/console/") {
			continue
		}
		found++
		code, _, header := s.ask(http.MethodGet, part)
		if kind := kinds[part[strings.LastIndex(part, "."):]]; code != http.StatusOK ||
			!strings.HasPrefix(header.Get("Content-Type"), kind) || header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: got %d, headers %v; want %s", part, code, header, kind)
		}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+part, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("If-None-Match", header.Get("ETag"))
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusNotModified {
			t.Errorf("%s asked for again: got %d, want 304", part, response.StatusCode)
		}
	}
	if found < 4 {
		t.Errorf("/: names %d files of its own, want at least 4", found)
	}
}

// Breaks it catches: a stream that ends with the server's time for a request, more pages than may be (seen to fail
// without the count), a place that is not given back.
func TestStreamFeedsSomePagesForLong(t *testing.T) {
	t.Parallel()
	s, _ := newSite(t)
	open := func() (*http.Response, *bufio.Scanner) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/api/v1/stream", nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = response.Body.Close() })
		return response, bufio.NewScanner(response.Body)
	}
	first, lines := open()
	if kind := first.Header.Get("Content-Type"); !strings.HasPrefix(kind, "text/event-stream") {
		t.Errorf("content type: got %q", kind)
	}
	var others []*http.Response
	for range 15 {
		r, _ := open()
		others = append(others, r)
	}
	if r, _ := open(); r.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a seventeenth page: got %d, want 503", r.StatusCode)
	}
	_ = others[0].Body.Close()
	began, points := time.Now(), 0
	for lines.Scan() {
		data, found := strings.CutPrefix(lines.Text(), "data: ")
		if !found {
			continue
		}
		var frame struct {
			Status struct{ Service string }
			Point  *struct{ At int64 }
		}
		if err := json.Unmarshal([]byte(data), &frame); err != nil || frame.Status.Service != "shop" {
			t.Fatalf("frame: %v: %.200s", err, data)
		}
		if frame.Point != nil {
			points++
		}
		// A request may take 5 s. A busy machine has fewer points a second.
		if past := time.Since(began); past > 7*time.Second && points >= 5 || past > time.Minute {
			break
		}
	}
	if err := lines.Err(); err != nil || points < 5 {
		t.Errorf("after %v: %v; got %d points, want one a second", time.Since(began), err, points)
	}
	if r, _ := open(); r.StatusCode != http.StatusOK {
		t.Errorf("another page after one has gone: got %d, want 200", r.StatusCode)
	}
	if code, body, _ := s.ask(http.MethodGet, "/api/v1/notes"); code != http.StatusOK ||
		!strings.Contains(body, `"starting"`) {
		t.Errorf("notes: got %d %s, want the role that it began with", code, body)
	}
	if code, body, _ := s.ask(http.MethodGet, "/api/v1/config"); code != http.StatusOK ||
		!strings.Contains(body, `"postgres.slot"`) {
		t.Errorf("configuration: got %d %.200s, want the keys", code, body)
	}
}
