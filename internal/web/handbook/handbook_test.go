package handbook

import (
	"compress/gzip"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/docs"
)

func ask(t *testing.T, target string) *httptest.ResponseRecorder {
	t.Helper()
	mux := http.NewServeMux()
	Register(mux)
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, target, nil))
	return w
}

var (
	linkTo = regexp.MustCompile(`(?:href|src)="([^"]*)"`)
	named  = regexp.MustCompile(` id="([^"]*)"`)
)

// Breaks it catches: a page that is not embedded, a link of a page that leads nowhere when it is served (seen to fail
// with links left as the sources have them), anything loaded from elsewhere.
func TestEveryPageIsServedAndItsLinksLeadSomewhere(t *testing.T) {
	ids := map[string]map[string]bool{} // by address
	bodies := map[string]string{}
	err := fs.WalkDir(docs.Files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() && (name == "." || !isFolder(name)) {
			return err
		}
		address := "/docs/" + strings.TrimSuffix(name, ".md")
		w := ask(t, address)
		kind := "text/html; charset=utf-8"
		if files[path.Ext(name)] != "" {
			kind = files[path.Ext(name)]
		}
		policy := w.Header().Get("Content-Security-Policy")
		if w.Code != http.StatusOK || w.Header().Get("Content-Type") != kind ||
			!strings.HasPrefix(policy, "default-src 'none'") {
			t.Errorf("%s: got %d, headers %v", address, w.Code, w.Header())
		}
		if !strings.HasPrefix(kind, "text/html") {
			bodies[address] = ""
			return nil
		}
		bodies[address], ids[address] = w.Body.String(), map[string]bool{}
		for _, m := range named.FindAllStringSubmatch(bodies[address], -1) {
			if ids[address][m[1]] {
				t.Errorf("%s: the anchor %s is there twice", address, m[1])
			}
			ids[address][m[1]] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(bodies) < 30 {
		t.Fatalf("got %d pages and pictures, want all of docs", len(bodies))
	}
	ids["/docs/"], bodies["/docs/"] = ids["/docs/"+index], bodies["/docs/"+index]
	for address, body := range bodies {
		for _, m := range linkTo.FindAllStringSubmatch(body, -1) {
			to, anchor, _ := strings.Cut(m[1], "#")
			if to == "" {
				to = address
			}
			_, known := bodies[to]
			switch {
			case strings.HasPrefix(to, "https://"), to == "/", to == "/docs/handbook.css", to == "/docs/search", to == "/docs/icon.svg":
			case !known:
				t.Errorf("%s links to %s, which is not served", address, m[1])
			case anchor != "" && !ids[to][anchor]:
				t.Errorf("%s links to %s: that page has no such heading", address, m[1])
			}
		}
	}
}

// Breaks it catches: HTML or a script in a page that becomes part of what is served (seen to fail with raw HTML let
// through), a path that leads out of the pages.
func TestPagesBringNoCodeAlong(t *testing.T) {
	got := string(render([]byte("# A `title` here\n\n<script>alert(1)</script>\n\n[x](javascript:alert(1)) <b "+
		"onclick=\"x\">b</b>\n"), ".").Body)
	for _, forbidden := range []string{"<script", "javascript:", "onclick"} {
		if strings.Contains(got, forbidden) {
			t.Errorf("got %s, want no %s in it", got, forbidden)
		}
	}
	for _, target := range []string{"/docs/nothing", "/docs/../go", "/docs/docs.go", "/docs/images/",
		"/docs//etc/passwd", "/docs/%2e%2e/go", "/docs/x.png"} {
		if w := ask(t, target); w.Code == http.StatusOK || w.Code >= http.StatusInternalServerError {
			t.Errorf("%s: got %d, want no page", target, w.Code)
		}
	}
}

// Code in a heading is shown as code, in the page's title and in the list of its sections too. Seen to fail without the
// escape of the title, without that of a section, and with the title filled in before the body is looked for.
func TestHeadingsBringNoCodeAlong(t *testing.T) {
	const section = "## `<img src=x onerror=alert(1)>` \"&{{title}}\n\n"
	got := render([]byte("# `</title><script>alert(1)</script>{{body}}`\n\n"+strings.Repeat(section, leastSections)), ".").
		frame()
	for _, forbidden := range []string{"<script", "<img", "{{sections}}"} {
		if strings.Contains(got, forbidden) {
			t.Errorf("got %s, want no %s in it", got, forbidden)
		}
	}
	for _, want := range []string{
		"<title>&lt;/title&gt;&lt;script&gt;alert(1)&lt;/script&gt;{{body}} · cdc-relay</title>",
		`<li><a href="#img-srcx-onerroralert1-title-1">&lt;img src=x onerror=alert(1)&gt; &#34;&amp;{{title}}</a></li>`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("got %s, want %s in it", got, want)
		}
	}
}

// A link to a section works here and on a forge. Seen to fail with goldmark's own names, and with the second of two
// equal headings named like the first.
func TestAnchorsAreThoseOfAForge(t *testing.T) {
	body := string(render([]byte("## The `outbox_dlq_events` gauge: why?\n\n## Again\n\n## Again\n"), ".").Body)
	for _, want := range []string{"the-outbox_dlq_events-gauge-why", "again", "again-1"} {
		if !strings.Contains(body, `id="`+want+`"`) {
			t.Errorf("got %s, want an anchor %s", body, want)
		}
	}
}

// Seen to fail with the folder of the page left out.
func TestLinksLeadToPagesPicturesAndTheRepository(t *testing.T) {
	for _, row := range []struct{ folder, link, want string }{
		{".", "operations.md#halts", "/docs/operations#halts"}, {".", "#halts", "#halts"},
		{".", "images/a.png", "/docs/images/a.png"},
		{"runbooks", "../operations.md", "/docs/operations"}, {"runbooks", "column.md", "/docs/runbooks/column"},
		{".", "../test/simulator/doc.go", repository + "test/simulator/doc.go"},
		{".", "../README.md", repository + "README.md"}, {".", "lab/a.md", repository + "docs/lab/a.md"},
		{".", "https://example.org/a.md", "https://example.org/a.md"},
	} {
		if got := target(row.link, row.folder); got != row.want {
			t.Errorf("%s in %s: got %s, want %s", row.link, row.folder, got, row.want)
		}
	}
}

// Breaks it catches: a folder without a page, an icon that is not there, a page that is compressed for those who do not
// read that, or into something else.
func TestFoldersIconAndCompressedPagesAreServed(t *testing.T) {
	if w := ask(t, "/docs/runbooks"); w.Code != http.StatusOK ||
		!strings.Contains(w.Body.String(), `href="/docs/runbooks/column"`) {
		t.Errorf("/docs/runbooks: got %d %s, want a list of runbooks", w.Code, w.Body)
	}
	if w := ask(t, "/docs/"); !strings.Contains(w.Body.String(), `href="/docs/runbooks"`) {
		t.Error("the contents do not lead to /docs/runbooks")
	}
	if w := ask(t, "/docs/icon.svg"); w.Code != http.StatusOK || w.Header().Get("Content-Type") != "image/svg+xml" {
		t.Errorf("/docs/icon.svg: got %d, %v", w.Code, w.Header())
	}
	plain := ask(t, "/docs/alerts").Body.String()
	mux := http.NewServeMux()
	Register(mux)
	for range 2 { // the second one is remembered
		w := httptest.NewRecorder()
		req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/docs/alerts", nil)
		req.Header.Set("Accept-Encoding", "gzip, br")
		mux.ServeHTTP(w, req)
		z, err := gzip.NewReader(w.Body)
		if err != nil || w.Header().Get("Content-Encoding") != "gzip" {
			t.Fatalf("compressed: %v, headers %v", err, w.Header())
		}
		if text, err := io.ReadAll(z); err != nil || string(text) != plain {
			t.Errorf("compressed: got another page, %v", err)
		}
	}
}

// Breaks it catches: a section that is not found, or found under an anchor that its page does not have; a question that
// becomes part of the page; an answer that is kept for another question.
func TestSearchFindsSections(t *testing.T) {
	for _, row := range []struct{ question, want string }{
		{"OutboxBrokerUnavailable", `href="/docs/alerts#outboxbrokerunavailable"`},
		{"outbox.published_when", `href="/docs/configuration`},
		{"TABLE without an aggregate", `href="/docs/migrating#a-table-without-an-aggregate"`},
		{"zzz-no-such-word", "No section has all of these words."},
		{`<script>alert("x")</script>`, "&lt;script&gt;"},
		{strings.Repeat("x ", 99), "No section has all of these words."},
		{"", "Words that a section of the pages has"},
	} {
		got := ask(t, "/docs/search?q="+url.QueryEscape(row.question)).Body.String()
		if !strings.Contains(got, row.want) || strings.Contains(got, "<script") {
			t.Errorf("%q: got %s, want %s in it and no script", row.question, got, row.want)
		}
	}
	for _, p := range passages() {
		page, anchor, _ := strings.Cut(p.address, "#")
		if body := ask(t, page).Body.String(); anchor != "" && !strings.Contains(body, ` id="`+anchor+`"`) {
			t.Errorf("the section %s is not on its page", p.address)
		}
	}
	mux := http.NewServeMux()
	Register(mux)
	for _, question := range []string{"halted", "slot"} {
		w := httptest.NewRecorder()
		req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/docs/search?q="+question, nil)
		req.Header.Set("Accept-Encoding", "gzip")
		mux.ServeHTTP(w, req)
		if !strings.Contains(w.Body.String(), "<h1>"+question+"</h1>") {
			t.Errorf("%s: got the answer to another question", question)
		}
	}
}
