package openapi

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/pb33f/libopenapi"
	validator "github.com/pb33f/libopenapi-validator"

	"github.com/cdc-relay/cdc-relay/docs"
	"github.com/cdc-relay/cdc-relay/internal/web"
)

const name = "openapi.yaml"

// document is as much of the document as these tests look at by themselves.
type document struct {
	Paths      map[string]map[string]operation
	Components struct {
		RequestBodies map[string]body `yaml:"requestBodies"`
	}
}

type operation struct {
	Body      *body          `yaml:"requestBody"`
	Responses map[string]any `yaml:"responses"`
}

type body struct {
	Ref     string `yaml:"$ref"`
	Content map[string]struct {
		Examples map[string]struct{ Value any }
	}
}

// read gives the document, and a validator of it.
func read(t *testing.T) (document, validator.Validator) {
	t.Helper()
	text, err := docs.Files.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var d document
	if err := yaml.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	parsed, err := libopenapi.NewDocument(text)
	if err != nil {
		t.Fatalf("read the document: %v", err)
	}
	v, errs := validator.NewValidator(parsed)
	if len(errs) > 0 {
		t.Fatalf("read the document: %v", errs)
	}
	return d, v
}

// Break it catches: a document that tools do not read. Seen to fail with a response without a description, and with a
// reference to a schema that is not there.
func TestDocumentIsOpenAPI(t *testing.T) {
	t.Parallel()
	_, v := read(t)
	if valid, problems := v.ValidateDocument(); !valid {
		for _, p := range problems {
			t.Errorf("%s: %s %v", p.Message, p.Reason, p.SchemaValidationErrors)
		}
	}
}

// ours are addresses of the server; pages are those that browsers show to people.
var (
	ours  = regexp.MustCompile(`^(?:[A-Z]+ )?(/(?:[a-z].*)?)$`)
	pages = []string{"/", "/{$}", "/console/", "/docs", "/docs/", "/docs/handbook.css", "/docs/{page...}",
		"/docs/runbooks/", "/api/"}
)

// served are the addresses that stand in the code of the server.
func served(t *testing.T) (found []string) {
	t.Helper()
	files, err := filepath.Glob("../../internal/web/*.go")
	if err != nil || len(files) < 5 {
		t.Fatalf("code of the server: %v, %v", files, err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") || filepath.Base(file) == "demo.go" { // which no relay serves
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			literal, is := n.(*ast.BasicLit)
			if !is || literal.Kind != token.STRING {
				return true
			}
			text, err := strconv.Unquote(literal.Value)
			if m := ours.FindStringSubmatch(text); err == nil && m != nil && !slices.Contains(pages, m[1]) {
				found = append(found, m[1])
			}
			return true
		})
	}
	slices.Sort(found)
	return append(slices.Compact(found), "/docs/"+name)
}

// fits reports whether a path of the document can be the address.
func fits(template, address string) bool {
	parts, words := strings.Split(template, "/"), strings.Split(address, "/")
	return slices.EqualFunc(parts, words, func(part, word string) bool { return part == word || part == "{id}" })
}

// allowed reports whether the document has the method for the address, of whichever path it is.
func (d document) allowed(method, address string) bool {
	for template, operations := range d.Paths {
		if _, is := operations[strings.ToLower(method)]; is && fits(template, address) {
			return true
		}
	}
	return false
}

// Breaks it catches: an address of the server that the document does not have, one of the document that the server does
// not have, and a method that only one of them has. Seen to fail with /api/v1/nothing instead of /api/v1/notes in the
// document, and with post instead of get.
func TestDocumentHasTheRoutesOfTheServer(t *testing.T) {
	t.Parallel()
	d, _ := read(t)
	want, got := served(t), slices.Sorted(maps.Keys(d.Paths))
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("paths: the document has\n%v\nthe server\n%v", got, want)
	}
	s, _ := newSite(t)
	url := s.listen(web.Config{Address: "127.0.0.1:0"})
	for path := range d.Paths {
		for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE"} {
			address := strings.ReplaceAll(path, "{id}", "1")
			_, response, _ := ask(t, method, url+address, "", nil)
			stands := d.allowed(method, address)
			notAllowed := response.StatusCode == http.StatusMethodNotAllowed
			if stands == notAllowed {
				t.Errorf("%s %s: stands in the document: %v; the server answers %d", method, path, stands, response.StatusCode)
			}
		}
	}
	text, err := os.ReadFile("../../docs/" + name)
	if err != nil {
		t.Fatal(err)
	}
	_, response, sent := ask(t, http.MethodGet, url+"/docs/"+name, "", nil)
	if sent != string(text) || response.Header.Get("Content-Type") != "application/yaml" {
		t.Errorf("the served document: got %d bytes as %s, want the file", len(sent), response.Header.Get("Content-Type"))
	}
}
