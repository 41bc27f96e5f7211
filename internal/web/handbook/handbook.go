// Package handbook serves the project's pages under /docs, as they were when the binary was built: at 3 a.m. the
// runbook of an alert is a click away and fits the version that runs. It turns Markdown into HTML that needs no script,
// and knows nothing of a relay.
//
// Tested in handbook_test.go, which renders every page.
package handbook

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"errors"
	"fmt"
	"html"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"strings"
	"sync"

	"github.com/cdc-relay/cdc-relay/docs"
)

const (
	// index is the page at /docs/.
	index = "README"
	// repository is where what is not among the pages is to be seen, such as the code that a page speaks of.
	repository = "https://github.com/cdc-relay/cdc-relay/blob/main/"
	// policy lets a page have its style, its pictures and the search, and nothing else.
	policy = "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; form-action 'self'; " +
		"frame-ancestors 'none'"
)

//go:embed handbook.css
var style []byte

//go:embed icon.svg
var icon []byte

// Register serves /docs and what is below it.
func Register(mux *http.ServeMux) {
	mux.Handle("GET /docs", http.RedirectHandler("/docs/", http.StatusMovedPermanently))
	mux.HandleFunc("GET /docs/handbook.css", func(w http.ResponseWriter, req *http.Request) {
		send(w, req, "text/css; charset=utf-8", style)
	})
	mux.HandleFunc("GET /docs/icon.svg", func(w http.ResponseWriter, req *http.Request) {
		send(w, req, "image/svg+xml", icon)
	})
	mux.HandleFunc("GET /docs/search", search)
	mux.HandleFunc("GET /docs/{page...}", func(w http.ResponseWriter, req *http.Request) {
		name := req.PathValue("page")
		if name == "" {
			name = index
		}
		if inside, is := strings.CutSuffix(name, ".md"); is { // as a link in the sources has it
			http.Redirect(w, req, "/docs/"+inside, http.StatusMovedPermanently)
			return
		}
		serve(w, req, name)
	})
}

// files are the kinds of what is served as it is, by its ending.
var files = map[string]string{".png": "image/png", ".yaml": "application/yaml"} // RFC 9512

// serve answers with a picture or the description of the API, or with the page of that name.
func serve(w http.ResponseWriter, req *http.Request, name string) {
	if kind := files[path.Ext(name)]; kind != "" {
		if file, err := docs.Files.ReadFile(name); err == nil {
			send(w, req, kind, file)
			return
		}
	}
	text, err := page(name)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrInvalid):
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte("No such page. All pages: /docs/\n")) // the client is gone: no one to tell
		return
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	send(w, req, "text/html; charset=utf-8", text)
}

// zipped holds what was compressed, by its address: anyone who reaches the listener may request it, again and again.
var zipped sync.Map

func send(w http.ResponseWriter, req *http.Request, kind string, body []byte) {
	header := w.Header()
	header.Set("Content-Security-Policy", policy)
	header.Set("Cache-Control", "no-cache")
	header.Set("Content-Type", kind)
	header.Set("Vary", "Accept-Encoding")
	if kind != "image/png" && req.URL.RawQuery == "" && strings.Contains(req.Header.Get("Accept-Encoding"), "gzip") {
		header.Set("Content-Encoding", "gzip")
		body = compressed(req.URL.Path, body)
	}
	_, _ = w.Write(body) // the client is gone: no one to tell
}

// compressed is the body as gzip. What is at a path is always the same without a query, and there are as many as docs
// has.
func compressed(path string, body []byte) []byte {
	if made, found := zipped.Load(path); found {
		return made.([]byte)
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write(body) // a buffer takes everything
	_ = z.Close()
	zipped.Store(path, b.Bytes())
	return b.Bytes()
}

// frame surrounds every page. The names in it are filled in by [rendered.frame].
const frame = `<!doctype html>
<html lang="en">
<head>
  <meta charset="utf-8">
  <meta name="viewport" content="width=device-width, initial-scale=1">
  <meta name="color-scheme" content="light dark">
  <title>{{title}} · cdc-relay</title>
  <link rel="icon" href="/docs/icon.svg" type="image/svg+xml">
  <link rel="stylesheet" href="/docs/handbook.css">
</head>
<body>
  <header><a href="/docs/">cdc-relay docs</a> <a href="/docs/alerts">Alerts</a>
    <a href="/docs/operations">Operations</a> <a href="/">Console</a>
    <form action="/docs/search" role="search"><input type="search" name="q" maxlength="200" placeholder="Search"
      aria-label="Search these pages"></form></header>
  <main>
{{sections}}{{body}}  </main>
</body>
</html>
`

// made holds the rendered pages by name: rendering takes milliseconds, and anyone who reaches the
// listener may request them. There are as many as docs has.
var made sync.Map

// page is the HTML of docs/<name>.md, rendered once.
func page(name string) ([]byte, error) {
	if text, found := made.Load(name); found {
		return text.([]byte), nil
	}
	text, err := rendering(name)
	if err == nil {
		made.Store(name, text)
	}
	return text, err
}

func rendering(name string) ([]byte, error) {
	source, err := docs.Files.ReadFile(name + ".md")
	folder := path.Dir(name)
	if errors.Is(err, fs.ErrNotExist) && name != "." {
		folder = name
		source, err = contents(name)
	}
	if err != nil {
		return nil, fmt.Errorf("read the page %s: %w", name, err)
	}
	return []byte(render(source, folder).frame()), nil
}

// contents is the page of a folder: its README, or a list of its pages.
func contents(folder string) ([]byte, error) {
	if source, err := docs.Files.ReadFile(path.Join(folder, index+".md")); err == nil {
		return source, nil
	}
	pages, err := fs.Glob(docs.Files, path.Join(folder, "*.md"))
	if err != nil || len(pages) == 0 {
		return nil, fs.ErrNotExist
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n", strings.ToUpper(folder[:1])+folder[1:])
	for _, name := range pages {
		source, err := docs.Files.ReadFile(name)
		if err != nil {
			return nil, err
		}
		title, _, _ := strings.Cut(strings.TrimPrefix(string(source), "# "), "\n")
		fmt.Fprintf(&b, "- [%s](%s)\n", title, path.Base(name))
	}
	return []byte(b.String()), nil
}

// frame is the whole page. What comes from a page's words is escaped, but for its body, which the renderer has escaped.
// html/template is not used: it calls methods by their names, so with it the linker keeps every method of every type in
// the program.
func (r rendered) frame() string {
	return strings.NewReplacer("{{title}}", html.EscapeString(r.Title), "{{sections}}", r.sections(), "{{body}}", r.Body).
		Replace(frame)
}

// sections is the list of links to them; empty without any.
func (r rendered) sections() string {
	if len(r.Sections) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("<nav aria-label=\"On this page\"><ul>\n")
	for _, s := range r.Sections {
		fmt.Fprintf(&b, `<li><a href="#%s">%s</a></li>`, url.PathEscape(s.ID), html.EscapeString(s.Title))
	}
	b.WriteString("</ul></nav>\n")
	return b.String()
}
