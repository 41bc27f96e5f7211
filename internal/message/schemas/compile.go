package schemas

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Schema is a single schema. It never changes, and any goroutine may use it.
type Schema struct {
	schema *jsonschema.Schema
	effort *sharedEffort
}

// base is the location of a schema without an $id, unless one of the others does: their names are relative to it.
const base = "registry:///schema.json"

// Compile makes a schema of its text and of the others that it refers to, by the names that it has for them. It reads
// no file and asks no network. Without $schema it is of draft 7, which registries take such a schema for.
func Compile(text string, others map[string]string) (*Schema, error) {
	strict, bounded := newCompiler(jsonschema.Draft7), newCompiler(jsonschema.Draft7)
	effort := bound(bounded)
	strict.UseLoader(nothing{})
	bounded.UseLoader(nothing{})
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("read the schema: %w", err)
	}
	at, err := place(others)
	if err != nil {
		return nil, err
	}
	if object, is := document.(map[string]any); is {
		if id, is := object["$id"].(string); is {
			if at, err = at.Parse(id); err != nil {
				return nil, fmt.Errorf("read the schema's $id: %w", err)
			}
		}
	}
	for name, text := range others {
		other, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
		if err != nil {
			return nil, fmt.Errorf("read the schema %s: %w", name, err)
		}
		where, err := at.Parse(name)
		if err != nil {
			return nil, fmt.Errorf("read the name of the schema %s: %w", name, err)
		}
		if err := addTwice(strict, bounded, where.String(), other); err != nil {
			return nil, fmt.Errorf("add the schema %s: %w", name, err)
		}
	}
	if err := addTwice(strict, bounded, at.String(), document); err != nil {
		return nil, err
	}
	schema, err := compileTwice(strict, bounded, at.String())
	if err != nil {
		return nil, err
	}
	return &Schema{schema, effort}, nil
}

func addTwice(strict, bounded *jsonschema.Compiler, at string, document any) error {
	if err := strict.AddResource(at, document); err != nil {
		return err
	}
	return bounded.AddResource(at, document)
}

// place is base, or a place beside it that no name of the others leads to.
func place(others map[string]string) (*url.URL, error) {
	at, err := url.Parse(base)
	if err != nil {
		return nil, err
	}
	taken := map[string]bool{}
	for name := range others {
		where, err := at.Parse(name)
		if err != nil {
			return nil, fmt.Errorf("read the name of the schema %s: %w", name, err)
		}
		taken[where.Path] = true
	}
	for taken[at.Path] {
		at.Path = "/_" + at.Path[1:]
	}
	return at, nil
}

// Misfit says where and why a payload does not fit, without any of its values; empty: it fits.
func (s *Schema) Misfit(payload []byte) string {
	why, isJSON := s.misfit(payload)
	if !isJSON {
		return "it is not JSON"
	}
	return why
}

// nothing refuses to load from files and networks.
type nothing struct{}

func (nothing) Load(address string) (any, error) {
	return nil, fmt.Errorf("%s is neither in the schema nor among its references", address)
}

// readOnce loads files, each once: what two compilers make of a file is made of the same text.
type readOnce map[string]any

// Load implements jsonschema.URLLoader.
func (r readOnce) Load(address string) (any, error) {
	if document, is := r[address]; is {
		return document, nil
	}
	document, err := jsonschema.FileLoader{}.Load(address)
	if err == nil {
		r[address] = document
	}
	return document, err
}
