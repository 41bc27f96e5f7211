package handbook

import (
	"bytes"
	"io/fs"
	"net/url"
	"path"
	"strconv"
	"strings"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"

	"github.com/cdc-relay/cdc-relay/docs"
)

// leastSections is from how many sections on a page begins with a list of them.
const leastSections = 4

// markdown omits raw HTML and javascript: links, as goldmark does by default.
var markdown = goldmark.New(goldmark.WithExtensions(extension.Table),
	goldmark.WithParserOptions(parser.WithAutoHeadingID()))

type section struct{ ID, Title string }

// rendered holds the values of a page's frame.
type rendered struct {
	Title    string
	Sections []section // of the second level; none on a short page
	Body     string    // HTML
}

// render turns a page in the folder (below docs, "." for docs itself) into HTML.
func render(source []byte, folder string) (r rendered) {
	r.Title = "Docs"
	tree := markdown.Parser().Parse(text.NewReader(source),
		parser.WithContext(parser.NewContext(parser.WithIDs(anchors{}))))
	_ = ast.Walk(tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Link:
			n.Destination = []byte(target(string(n.Destination), folder))
		case *ast.Image:
			n.Destination = []byte(target(string(n.Destination), folder))
		case *ast.Heading:
			id, _ := n.AttributeString("id")
			name, _ := id.([]byte)
			switch n.Level {
			case 1:
				r.Title = plain(n, source)
			case 2:
				r.Sections = append(r.Sections, section{string(name), plain(n, source)})
			}
		}
		return ast.WalkContinue, nil
	})
	if len(r.Sections) < leastSections {
		r.Sections = nil
	}
	var out bytes.Buffer
	if err := markdown.Renderer().Render(&out, source, tree); err != nil {
		return rendered{Title: r.Title} // a buffer takes everything
	}
	r.Body = out.String()
	return r
}

// target is where a link of a page in the folder leads: to another page, to a picture, or for what is outside docs to
// the repository.
func target(link, folder string) string {
	u, err := url.Parse(link)
	if err != nil || u.IsAbs() || u.Path == "" {
		return link
	}
	to := path.Join("docs", folder, u.Path)
	inside, is := strings.CutPrefix(to, "docs/")
	switch {
	case to == "docs":
		u.Path = "/docs/"
	case is && path.Ext(inside) == ".png":
		u.Path = "/docs/" + inside
	case is && path.Ext(inside) == ".md" && path.Dir(inside) != "lab": // docs/lab is not embedded
		u.Path = "/docs/" + strings.TrimSuffix(inside, ".md")
	case is && isFolder(inside):
		u.Path = "/docs/" + inside
	default:
		return repository + to
	}
	return u.String()
}

// isFolder reports whether a folder of pages has the name.
func isFolder(name string) bool {
	pages, err := fs.Glob(docs.Files, path.Join(name, "*.md"))
	return err == nil && len(pages) > 0 && path.Ext(name) == ""
}

// plain is a heading without its marks.
func plain(n ast.Node, source []byte) string {
	var out strings.Builder
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if t, is := n.(*ast.Text); is && entering {
			out.Write(t.Segment.Value(source))
		}
		return ast.WalkContinue, nil
	})
	return out.String()
}

// anchors names headings as forges do, so that a link works there and here; goldmark's own names lose underscores. The
// values count how often a name was given.
type anchors map[string]int

// Generate implements parser.IDs.
func (a anchors) Generate(title []byte, _ ast.NodeKind) []byte {
	name := strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
			return unicode.ToLower(r)
		}
		return -1
	}, strings.TrimSpace(string(title)))
	n := a[name]
	a[name]++
	if n > 0 {
		name += "-" + strconv.Itoa(n)
	}
	return []byte(name)
}

// Put implements parser.IDs.
func (a anchors) Put(name []byte) { a[string(name)]++ }
