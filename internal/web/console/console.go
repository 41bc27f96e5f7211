// Package console is the web page on which a relay shows what it does: files that are served as they are. It asks the
// API for everything, needs no build step, and loads nothing from elsewhere.
//
// Tested by package admin, in a real browser.
package console

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"html"
	"io/fs"
	"net/http"
	"path"
)

//go:embed *.html *.js *.css *.svg vendor
var files embed.FS

// policy lets the page load its own files, ask its own origin, and nothing else: no inline script, no inline style.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Register serves the page at / and its files under /console/. The page loads the scripts too, which are the caller's
// to serve, at addresses of this origin.
func Register(mux *http.ServeMux, scripts ...string) { register(mux, "index.html", scripts...) }

// RegisterMany serves at / the page that lists several relays; with the parameter relay the page is that of one.
func RegisterMany(mux *http.ServeMux) { register(mux, "many.html") }

func register(mux *http.ServeMux, first string, scripts ...string) {
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := files.ReadFile(name)
		if err != nil {
			return err
		}
		pattern := "GET /console/" + name
		if path.Ext(name) == ".html" && name != first {
			return nil
		}
		if name == first {
			pattern, text = "GET /{$}", withScripts(text, scripts)
		}
		mux.Handle(pattern, newFile(name, text))
		return nil
	})
	if err != nil {
		panic("console: its own files cannot be read: " + err.Error())
	}
}

// withScripts makes a page load further modules.
func withScripts(page []byte, scripts []string) []byte {
	const end = "</head>"
	for _, address := range scripts {
		tag := `  <script type="module" src="` + html.EscapeString(address) + "\"></script>\n"
		page = bytes.Replace(page, []byte(end), []byte(tag+end), 1)
	}
	return page
}

// kinds are the files' by their endings. What the machine's tables say must not matter, and a start need not read them.
var kinds = map[string]string{
	".html":    "text/html; charset=utf-8",
	".js":      "text/javascript; charset=utf-8",
	".css":     "text/css; charset=utf-8",
	".svg":     "image/svg+xml",
	".LICENSE": "text/plain; charset=utf-8",
}

// file is one file with its tag, by which a browser that has it asks whether it is still the same.
type file struct {
	text      []byte
	kind, tag string
}

func newFile(name string, text []byte) *file {
	sum := sha256.Sum256(text)
	kind := kinds[path.Ext(name)]
	if kind == "" {
		panic("console: what kind of file " + name + " is, is not said")
	}
	return &file{text: text, kind: kind, tag: `"` + hex.EncodeToString(sum[:8]) + `"`}
}

func (f *file) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	header := w.Header()
	header.Set("Content-Security-Policy", policy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cache-Control", "no-cache")
	header.Set("ETag", f.tag)
	if req.Header.Get("If-None-Match") == f.tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	header.Set("Content-Type", f.kind)
	_, _ = w.Write(f.text) // the client is gone: no one to tell
}
