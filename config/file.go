package config

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// ${NAME} and $$ are replaced by these noncharacters before the file is parsed, and by their meaning afterwards. So a
// variable works in every place of the YAML, inside [ ] too where a brace would end the word, and a value with a quote
// or a # in it cannot change what the file means.
const (
	openVariable  = "\uFDD0"
	closeVariable = "\uFDD1"
	dollar        = "\uFDD2"
)

var (
	variable = regexp.MustCompile(`\$\$|\$\{[^}\n]*\}`)
	marked   = regexp.MustCompile(openVariable + "[^" + closeVariable + "]*" + closeVariable + "|" + dollar)
	name     = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// file reads one YAML document into raw values.
type file struct {
	name     string
	lookup   func(string) (string, bool) // the environment, for ${NAME}
	foreign  []string                    // see Input
	values   map[string]raw
	problems []Problem
}

// read parses the text. It says false when the text is not YAML, so that nothing is known of what it sets.
func (f *file) read(text []byte) bool {
	text = bytes.TrimPrefix(text, []byte("\uFEFF"))
	if !utf8.Valid(text) || bytes.ContainsAny(text, openVariable+closeVariable+dollar) {
		f.problems = append(f.problems, Problem{Where: f.name, What: "the file is not UTF-8 text"})
		return false
	}
	text = variable.ReplaceAllFunc(text, func(m []byte) []byte {
		if string(m) == "$$" {
			return []byte(dollar)
		}
		return []byte(openVariable + string(m[2:len(m)-1]) + closeVariable)
	})
	parsed, err := parser.ParseBytes(text, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		f.problems = append(f.problems, f.syntaxProblem(err))
		return false
	}
	for i, doc := range parsed.Docs {
		if doc.Body == nil {
			continue
		}
		if i > 0 {
			f.report("", doc.Body, "a second YAML document", "one document")
			continue
		}
		f.section("", doc.Body)
	}
	return true
}

// syntaxProblem keeps the parser's message and line and drops the excerpt of the file, which may hold a password.
func (f *file) syntaxProblem(err error) Problem {
	where := f.name
	message := err.Error()
	if y, ok := errors.AsType[yaml.Error](err); ok {
		message = y.GetMessage()
		if t := y.GetToken(); t != nil && t.Position != nil {
			where = fmt.Sprintf("%s:%d", f.name, t.Position.Line)
		}
	}
	return Problem{Where: where, What: "not valid YAML: " + message}
}

func (f *file) where(n ast.Node) string {
	return fmt.Sprintf("%s:%d", f.name, n.GetToken().Position.Line)
}

func (f *file) report(key string, n ast.Node, what, allowed string) {
	f.problems = append(f.problems, Problem{Key: key, Where: f.where(n), What: what, Allowed: allowed})
}

// section reads the keys of a mapping; prefix is "" or ends with a dot.
func (f *file) section(prefix string, n ast.Node) {
	entries, ok := f.mapping(n)
	if !ok {
		if _, empty := n.(*ast.NullNode); !empty {
			f.report(strings.TrimSuffix(prefix, "."), n, "found "+describe(n), "keys with values")
		}
		return
	}
	seen := map[string]ast.Node{}
	for _, entry := range entries {
		word := entry.Key.String()
		if text, ok := f.text(entry.Key); ok {
			word = text
		}
		path := prefix + word
		if first, twice := seen[word]; twice {
			f.report(path, entry.Key, fmt.Sprintf("set twice, first in line %d", first.GetToken().Position.Line), "once")
			continue
		}
		seen[word] = entry.Key
		f.entry(path, entry)
	}
}

func (f *file) entry(path string, entry *ast.MappingValueNode) {
	key, known := findKey(path)
	switch {
	case slices.Contains(f.foreign, path):
		f.report(path, entry.Key, "set for one relay of several", "for their process, by flags or the environment")
	case known && key.Available:
		f.value(key, entry.Key, entry.Value)
	case isSection(path) && !isEmptyMapping(entry.Value):
		f.section(path+".", entry.Value)
	case isSection(path) && slices.Contains(sections(), path):
		// nothing below it: nothing is set
	default:
		p := unknownKey(path, f.where(entry.Key))
		if _, isMapping := f.mapping(entry.Value); isMapping && !known {
			p = unknownSection(path, f.where(entry.Key))
		}
		f.problems = append(f.problems, p)
	}
}

func isEmptyMapping(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.NullNode:
		return true
	case *ast.MappingNode:
		return len(n.Values) == 0
	}
	return false
}

// mapping gives the entries of a mapping; the parser has a node of its own for a mapping with one entry.
func (f *file) mapping(n ast.Node) ([]*ast.MappingValueNode, bool) {
	switch n := n.(type) {
	case *ast.MappingNode:
		return n.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}, true
	}
	return nil, false
}

func (f *file) value(key Key, at, n ast.Node) {
	r := raw{where: f.where(at)}
	before := len(f.problems)
	if entries, ok := f.mapping(n); ok && key.Kind == Consumers {
		r.shape, r.consumers = isConsumers, f.consumers(key, n)
	} else if ok {
		r.shape, r.pairs = isPairs, map[string]string{}
		for _, entry := range entries {
			word := f.expanded(key, entry.Key)
			if _, twice := r.pairs[word]; twice {
				f.report(key.Name, entry.Key, fmt.Sprintf("%q is set twice", word), "once")
			}
			r.pairs[word] = f.expanded(key, entry.Value)
		}
	} else if sequence, ok := n.(*ast.SequenceNode); ok {
		r.shape, r.list = isList, []string{}
		for _, item := range sequence.Values {
			text := f.expanded(key, item)
			r.list = append(r.list, text)
		}
	} else {
		r.text = f.expanded(key, n)
	}
	if len(f.problems) == before {
		f.values[key.Name] = r
	}
}

// expanded is the text of a scalar with its variables replaced; what is wrong with it is reported.
func (f *file) expanded(key Key, n ast.Node) string {
	text, ok := f.text(n)
	if !ok {
		f.report(key.Name, n, "found "+describe(n), key.Allowed)
		return ""
	}
	return marked.ReplaceAllStringFunc(text, func(m string) string {
		if m == dollar {
			return "$"
		}
		m = strings.TrimSuffix(strings.TrimPrefix(m, openVariable), closeVariable)
		if !name.MatchString(m) {
			f.report(key.Name, n, fmt.Sprintf("found ${%s}", m), "${NAME} with letters, digits and _; $$ for one dollar sign")
			return ""
		}
		value, defined := f.lookup(m)
		if !defined {
			f.report(key.Name, n, fmt.Sprintf("the environment variable %s in ${%s} is not set", m, m), "")
		}
		return value
	})
}

// text is a scalar as it was written, without quotes: the key's own type decides what it means, not YAML's guess.
func (f *file) text(n ast.Node) (string, bool) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return n.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return n.GetToken().Value, true
	case *ast.MergeKeyNode:
		return "<<", true
	case *ast.MappingNode:
		if !n.IsFlowStyle && len(n.Values) == 1 {
			return f.joined(n.Values[0])
		}
	}
	return "", false
}

// joined is host:port in a list within { }, which the parser takes for a key and its value. In YAML a colon without a
// space behind it is a part of the text.
func (f *file) joined(n *ast.MappingValueNode) (string, bool) {
	key, isKey := f.text(n.Key)
	value, isValue := f.text(n.Value)
	if !isKey || !isValue || n.Start == nil {
		return "", false
	}
	colon, behind := n.Start.Position, n.Value.GetToken().Position
	return key + ":" + value, colon.Line == behind.Line && colon.Column+1 == behind.Column
}

// describe names the shape of a node that is not what was wanted, without its content.
func describe(n ast.Node) string {
	switch n.(type) {
	case *ast.NullNode:
		return "no value"
	case *ast.MappingNode, *ast.MappingValueNode:
		return "keys with values"
	case *ast.SequenceNode:
		return "a list"
	case *ast.AnchorNode, *ast.AliasNode, *ast.MergeKeyNode:
		return "an anchor or alias, which this file cannot have"
	case *ast.TagNode:
		return "a tag (!), which this file cannot have"
	}
	return "a single value"
}
