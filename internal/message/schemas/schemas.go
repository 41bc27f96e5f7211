// Package schemas holds the JSON Schemas of event types and says where a payload breaks its own. It reads its
// directory once, and nothing from a network; what becomes of an event that does not fit is not its concern.
//
// Tested here, and a single schema by package registry.
package schemas

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// extension ends the name of a schema's file; what is before it is the event type.
const extension = ".json"

// Set is the schemas of a directory. It never changes, and any goroutine may use it.
type Set struct {
	byType map[string]*Schema
}

// Load compiles every <event type>.json of the directory; a reference between them is the name of a file. The error
// has a line for each file that is not a schema. Without a directory there is no set: nil.
func Load(directory string) (*Set, error) {
	if directory == "" {
		return nil, nil
	}
	files, err := os.ReadDir(directory)
	if err != nil {
		return nil, err
	}
	strict, bounded := newCompiler(jsonschema.Draft2020), newCompiler(jsonschema.Draft2020)
	once := readOnce{}
	strict.UseLoader(once)
	bounded.UseLoader(once)
	effort := bound(bounded)
	s := &Set{byType: map[string]*Schema{}}
	var problems []error
	for _, file := range files {
		eventType, is := strings.CutSuffix(file.Name(), extension)
		if !is || eventType == "" || strings.HasPrefix(eventType, ".") {
			continue
		}
		schema, err := compileTwice(strict, bounded, filepath.Join(directory, file.Name()))
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %s", file.Name(), strings.Join(strings.Fields(err.Error()), " ")))
			continue
		}
		s.byType[eventType] = &Schema{schema, effort}
	}
	if len(s.byType)+len(problems) == 0 {
		problems = append(problems, fmt.Errorf("it has no file <event type>%s", extension))
	}
	return s, errors.Join(problems...)
}

// Misfit is Check; nil without a set, for who would rather not call it then.
func (s *Set) Misfit() func(eventType, payload []byte) string {
	if s == nil {
		return nil
	}
	return s.Check
}

// Check says where and why a payload does not fit the schema of its event type, without any of its values; empty: it
// fits, there is no schema for the type, or no payload (nil).
func (s *Set) Check(eventType, payload []byte) string {
	schema, has := s.byType[string(eventType)]
	if !has || payload == nil {
		return ""
	}
	why, isJSON := schema.misfit(payload)
	switch {
	case why == "":
		return ""
	case !isJSON:
		return fmt.Sprintf("event type %s has a schema, and the payload is not JSON: %s", eventType, why)
	}
	return fmt.Sprintf("the payload does not fit the schema of %s: %s", eventType, why)
}

// misfit returns where and why a payload does not fit, empty if it does, or why it is not JSON. It panics with a
// *TooLong when that takes too long.
func (s *Schema) misfit(payload []byte) (why string, isJSON bool) {
	if excess := Measure(payload).excess(); excess != "" {
		return excess, true
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(payload))
	if err != nil {
		return err.Error(), false
	}
	err = s.effort.validate(s.schema, value)
	if err == nil {
		return "", true
	}
	broken, is := errors.AsType[*jsonschema.ValidationError](err)
	if !is {
		return err.Error(), true
	}
	leaves := broken.Causes
	first, n := broken, 0
	walk(leaves, func(e *jsonschema.ValidationError) {
		if n++; n == 1 {
			first = e
		}
	})
	text := fmt.Sprintf("at %s %s", pointer(first.InstanceLocation), rule(first.ErrorKind))
	if n > 1 {
		text += fmt.Sprintf(", and %d more", n-1)
	}
	return text, true
}

// walk visits the errors that have no causes themselves: the broken rules.
func walk(list []*jsonschema.ValidationError, visit func(*jsonschema.ValidationError)) {
	for _, e := range list {
		if len(e.Causes) == 0 {
			visit(e)
		}
		walk(e.Causes, visit)
	}
}

// rule names what was broken. The library's own sentences hold values, which belong to the payload and not into logs.
func rule(broken jsonschema.ErrorKind) string {
	switch k := broken.(type) {
	case *kind.Required:
		return "rule required: it lacks " + listed(k.Missing)
	case *kind.Type:
		return "rule type: it is " + k.Got + ", and not " + strings.Join(k.Want, " or ")
	case *kind.AdditionalProperties:
		return "rule additionalProperties: " + listed(k.Properties)
	case *kind.Format:
		return "rule format: it is no " + k.Want
	}
	if path := broken.KeywordPath(); len(path) > 0 {
		return "rule " + path[len(path)-1]
	}
	return fmt.Sprintf("rule %s", strings.ToLower(strings.TrimPrefix(fmt.Sprintf("%T", broken), "*kind.")))
}

// mostListed bounds the names in a reason.
const mostListed = 5

func listed(names []string) string {
	more := ""
	if n := len(names) - mostListed; n > 0 {
		names, more = names[:mostListed], fmt.Sprintf(" and %d more", n)
	}
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = fmt.Sprintf("%.64q", name)
	}
	return strings.Join(quoted, ", ") + more
}

// pointer is the place in the payload as RFC 6901 writes it; / is the payload as a whole.
func pointer(path []string) string {
	const most = 256
	escape := strings.NewReplacer("~", "~0", "/", "~1")
	var b strings.Builder
	for _, name := range path {
		b.WriteString("/" + escape.Replace(name))
	}
	if b.Len() == 0 {
		return "/"
	}
	return fmt.Sprintf("%.*s", most, b.String())
}
