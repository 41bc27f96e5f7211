package handbook

import (
	"cmp"
	"fmt"
	"html"
	"io/fs"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"

	"github.com/cdc-relay/cdc-relay/docs"
)

const (
	mostFound   = 30
	longestWord = 60  // bytes; what is longer is in no page
	mostWords   = 8   // of a question
	excerptSize = 160 // bytes around the first word that was found
)

// passage is a section of a page, of any level.
type passage struct {
	address, page, title string
	text                 string // without marks, on one line
	low                  string // title and text in lower case
}

// search answers /docs/search. It looks at the pages in memory and needs no script.
func search(w http.ResponseWriter, req *http.Request) {
	question := strings.TrimSpace(req.URL.Query().Get("q"))
	r := rendered{Title: "Search", Body: "<h1>Search</h1>\n<p>Words that a section of the pages has, such as a metric, " +
		"a configuration key or the code of a dead letter.</p>\n"}
	if question != "" {
		r.Title, r.Body = "Search: "+question, listed(question, find(question))
	}
	send(w, req, "text/html; charset=utf-8", []byte(r.frame()))
}

// find gives the sections that have every word of the question, those with them in their titles first.
func find(question string) (found []passage) {
	words := strings.Fields(strings.ToLower(question))
	if len(words) > mostWords || slices.ContainsFunc(words, func(w string) bool { return len(w) > longestWord }) {
		return nil
	}
	for _, p := range passages() {
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(p.low, w) }) {
			found = append(found, p)
		}
	}
	inTitle := func(p passage) (n int) {
		for _, w := range words {
			if strings.Contains(strings.ToLower(p.title), w) {
				n++
			}
		}
		return n
	}
	slices.SortStableFunc(found, func(a, b passage) int { return cmp.Compare(inTitle(b), inTitle(a)) })
	return found
}

// listed is the list of them as HTML.
func listed(question string, found []passage) string {
	var b strings.Builder
	fmt.Fprintf(&b, "<h1>%s</h1>\n", html.EscapeString(question))
	if len(found) == 0 {
		b.WriteString("<p>No section has all of these words.</p>\n")
		return b.String()
	}
	if len(found) > mostFound {
		fmt.Fprintf(&b, "<p>The first %d of %d sections:</p>\n", mostFound, len(found))
	}
	b.WriteString("<ul class=\"found\">\n")
	for _, p := range found[:min(len(found), mostFound)] {
		title := p.page
		if p.title != p.page {
			title += ": " + p.title
		}
		fmt.Fprintf(&b, "<li><a href=\"%s\">%s</a><br>%s</li>\n", html.EscapeString(p.address), html.EscapeString(title),
			html.EscapeString(p.around(strings.Fields(strings.ToLower(question))[0])))
	}
	b.WriteString("</ul>\n")
	return b.String()
}

// around is the text near a word.
func (p passage) around(word string) string {
	at := max(strings.Index(strings.ToLower(p.text), word), 0)
	from, to := max(at-excerptSize/2, 0), min(at+excerptSize, len(p.text))
	for from > 0 && p.text[from-1] != ' ' {
		from--
	}
	for to < len(p.text) && p.text[to] != ' ' {
		to++
	}
	return strings.TrimSpace(p.text[from:to])
}

// passages are all sections of all pages, in the order of the pages' names.
var passages = sync.OnceValue(func() (all []passage) {
	_ = fs.WalkDir(docs.Files, ".", func(name string, _ fs.DirEntry, err error) error { // it is in the binary
		if err != nil || path.Ext(name) != ".md" {
			return err
		}
		source, err := docs.Files.ReadFile(name)
		if err == nil {
			all = append(all, cut("/docs/"+strings.TrimSuffix(name, ".md"), source)...)
		}
		return err
	})
	return all
})

// cut is a page in sections, with the anchors that [render] gives them.
func cut(address string, source []byte) (all []passage) {
	tree := markdown.Parser().Parse(text.NewReader(source),
		parser.WithContext(parser.NewContext(parser.WithIDs(anchors{}))))
	var starts []int
	_ = ast.Walk(tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		h, is := n.(*ast.Heading)
		if !is || !entering || h.Lines().Len() == 0 {
			return ast.WalkContinue, nil
		}
		id, _ := h.AttributeString("id")
		name, _ := id.([]byte)
		p := passage{address: address + "#" + string(name), title: plain(h, source)}
		if len(all) == 0 {
			p.address, p.page = address, p.title
		} else {
			p.page = all[0].page
		}
		all, starts = append(all, p), append(starts, h.Lines().At(h.Lines().Len()-1).Stop)
		return ast.WalkSkipChildren, nil
	})
	for i := range all {
		end := len(source)
		if i+1 < len(all) {
			end = starts[i+1] - len(all[i+1].title)
		}
		all[i].text = bare(string(source[starts[i]:max(end, starts[i])]))
		all[i].low = strings.ToLower(all[i].page + " " + all[i].title + " " + all[i].text)
	}
	return all
}

var (
	links = regexp.MustCompile(`!?\[([^\]]*)\]\([^)]*\)`)
	marks = regexp.MustCompile("(?m)<!--.*?-->|^[#>|: -]+|[`*|]|^```\\w*")
)

// bare is a piece of Markdown without its marks, on one line.
func bare(source string) string {
	return strings.Join(strings.Fields(marks.ReplaceAllString(links.ReplaceAllString(source, "$1"), " ")), " ")
}
