package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// clause is a part of the text of a statement that can be broken.
type clause struct {
	from, to int
	instead  string // the text that stands there then, with ~ for what stood there
	becomes  string // the same for people, short
	name     string // what is broken, for people; "" = the text
}

// How a clause is broken. A parameter of a statement must go on being used in it, and have its type: a statement that
// is refused is noticed by every test that sends it, and nothing is learned.
const (
	always    = "((~) OR true)"    // a condition among others that must hold
	never     = "((~) AND false)"  // of which one must hold
	anyOrder  = "random()"         // an order that is not known when the code is compiled
	boundless = "~ NULL::bigint +" // the word LIMIT or OFFSET
)

// lexeme is a word, a sign, or a text in quotes. Its depth counts brackets, and CASE as one.
type lexeme struct {
	from, to, depth int
	text            string
}

// clauses finds what can be broken in a statement, or in a part of one: every conjunct of every WHERE, HAVING and ON,
// every operand of an OR among them, every FOR UPDATE and the like, every SKIP LOCKED and NOWAIT, every ON CONFLICT,
// every LIMIT and OFFSET, and every key of an ORDER BY. These are turned round: without an order rows mostly come as
// they were inserted, as tests expect, though no server promises it. It reads the SQL that the store writes,
// not any SQL. opaque are the runes that stand for what is not known, such as the value of a variable.
func clauses(text string, opaque func(rune) bool) []clause {
	s := &statement{text: text, lexemes: lexemes(text, opaque)}
	if s.isCondition() {
		s.region(0)
	}
	for i, t := range s.lexemes {
		switch {
		case t.text == "ON" && s.word(i+1) == "CONFLICT":
			s.conflict(i)
		case t.text == "WHERE" && s.isArbiter(i): // it names an index, and is dropped with its ON CONFLICT
		case t.text == "WHERE" || t.text == "HAVING" || t.text == "ON" && s.isJoin(i):
			s.region(i + 1)
		case t.text == "FOR":
			s.lock(i)
		case t.text == "LIMIT" || t.text == "OFFSET":
			s.found = append(s.found, clause{t.from, t.to, boundless, "nothing", s.bound(i)})
		case t.text == "ORDER" && s.word(i+1) == "BY":
			s.order(i + 2)
		}
	}
	slices.SortFunc(s.found, func(a, b clause) int {
		if a.from != b.from {
			return a.from - b.from
		}
		return b.to - a.to
	})
	return slices.Compact(s.found)
}

type statement struct {
	text    string
	lexemes []lexeme
	found   []clause
}

func (s *statement) word(i int) string {
	if i >= len(s.lexemes) {
		return ""
	}
	return s.lexemes[i].text
}

// isCondition reports whether the text is a part of a statement that begins in the middle of conditions, or is one.
func (s *statement) isCondition() bool {
	switch s.word(0) {
	case "AND":
		return true
	case "SELECT", "INSERT", "UPDATE", "DELETE", "WITH", "WHERE", "CASE", "UNION", "CREATE", "ALTER", "COPY", "DECLARE",
		"EXPLAIN", "":
		return false
	case "(":
		return s.word(1) != "SELECT" && s.closing(0) == len(s.lexemes)-1
	}
	for _, t := range s.lexemes {
		if t.depth == 0 && (slices.Contains(ends, t.text) || t.text == "SELECT" || t.text == "FROM" || t.text == ",") {
			return false
		}
		if t.depth == 0 && t.text == "AND" {
			return true
		}
	}
	return false
}

// closing is the bracket that closes the one at i.
func (s *statement) closing(i int) int {
	for j := i + 1; j < len(s.lexemes); j++ {
		if s.lexemes[j].text == ")" && s.lexemes[j].depth == s.lexemes[i].depth {
			return j
		}
	}
	return -1
}

// ends are the words that end a list of conditions.
var ends = []string{
	"GROUP", "ORDER", "LIMIT", "OFFSET", "RETURNING", "UNION", "EXCEPT", "WINDOW", "HAVING", "WHERE", "JOIN", "LEFT",
	"CROSS", "ON", ";", ",", "LOOP",
}

// region reads conditions from lexeme i to where they end, and splits them.
func (s *statement) region(i int) {
	if i >= len(s.lexemes) {
		return
	}
	if s.lexemes[i].text == "AND" {
		i++
	}
	if i == len(s.lexemes) {
		return
	}
	depth := s.lexemes[i].depth
	end := i
	for end < len(s.lexemes) && s.lexemes[end].depth >= depth && !s.isEnd(end, depth) {
		end++
	}
	s.split(i, end)
}

// isEnd reports whether lexeme i ends a region of that depth.
func (s *statement) isEnd(i, depth int) bool {
	t := s.lexemes[i]
	return t.depth == depth && (slices.Contains(ends, t.text) || s.isLock(i))
}

// split makes clauses of the lexemes from…to-1: alternatives, and conjuncts within each.
func (s *statement) split(from, to int) {
	if from >= to {
		return
	}
	alternatives := s.cut(from, to, "OR")
	for _, a := range alternatives {
		if len(alternatives) > 1 {
			s.add(a[0], a[1], never, "false")
		}
		conjuncts := s.cut(a[0], a[1], "AND")
		for _, c := range conjuncts {
			if len(conjuncts) > 1 || len(alternatives) == 1 {
				s.add(c[0], c[1], always, "true")
			}
			if s.word(c[0]) == "(" && s.closing(c[0]) == c[1]-1 && s.word(c[0]+1) != "SELECT" {
				if len(s.cut(c[0]+1, c[1]-1, "OR")) > 1 || len(s.cut(c[0]+1, c[1]-1, "AND")) > 1 {
					s.split(c[0]+1, c[1]-1)
				}
			}
		}
	}
}

// cut cuts the lexemes at the word, where it stands at their own depth.
func (s *statement) cut(from, to int, word string) (parts [][2]int) {
	depth := s.lexemes[from].depth
	start := from
	for i := from; i < to; i++ {
		if s.lexemes[i].depth == depth && s.lexemes[i].text == word {
			parts = append(parts, [2]int{start, i})
			start = i + 1
		}
	}
	return append(parts, [2]int{start, to})
}

func (s *statement) add(from, to int, instead, becomes string) {
	to = s.known(from, to)
	if from < to && s.word(from) != "true" {
		s.found = append(s.found, clause{s.lexemes[from].from, s.lexemes[to-1].to, instead, becomes, ""})
	}
}

// known moves the end forward to what is known: what may follow, or not, is no part of a clause.
func (s *statement) known(from, to int) int {
	for to-1 > from && s.lexemes[to-1].text == opaqueText && !slices.Contains(operators, s.word(to-2)) {
		to--
	}
	return to
}

// operators are the words behind which an operand stands.
var operators = []string{"=", "<", ">", ":", "NOT", "IN"}

// bound is a LIMIT or OFFSET with what follows, as far as that is one word.
func (s *statement) bound(i int) string {
	return s.text[s.lexemes[i].from:s.lexemes[min(i+1, len(s.lexemes)-1)].to]
}

// drop is a clause that is left out.
func (s *statement) drop(from, to int) {
	s.found = append(s.found, clause{s.lexemes[from].from, s.lexemes[to-1].to, "", "nothing", ""})
}

// isArbiter reports whether the WHERE at i belongs to the index that an ON CONFLICT names.
func (s *statement) isArbiter(i int) bool {
	for j := i - 1; j >= 2 && s.lexemes[j].depth >= s.lexemes[i].depth; j-- {
		if s.lexemes[j].depth == s.lexemes[i].depth && !slices.Contains([]string{"(", ")"}, s.word(j)) {
			return s.word(j) == "CONFLICT"
		}
	}
	return false
}

// isJoin reports whether a condition follows the ON at i: not that of DISTINCT ON, or of GRANT SELECT ON.
func (s *statement) isJoin(i int) bool {
	return i == 0 || s.word(i-1) != "DISTINCT" && s.word(i-1) != "SELECT"
}

// conflict finds the end of an ON CONFLICT.
func (s *statement) conflict(i int) {
	end := i + 2
	for end < len(s.lexemes) && s.lexemes[end].depth >= s.lexemes[i].depth && s.word(end) != "RETURNING" &&
		s.word(end) != ";" {
		end++
	}
	s.drop(i, s.known(i, end))
}

// order turns each key round that begins at i.
func (s *statement) order(i int) {
	if i >= len(s.lexemes) {
		return
	}
	depth, first := s.lexemes[i].depth, i
	for end := i; ; end++ {
		over := end == len(s.lexemes) || s.lexemes[end].depth < depth ||
			s.lexemes[end].depth == depth && (slices.Contains(afterOrder, s.word(end)) || s.isLock(end))
		if over || s.lexemes[end].depth == depth && s.word(end) == "," {
			s.key(first, end)
			first = end + 1
		}
		if over {
			return
		}
	}
}

// afterOrder are the words that end the keys of an ORDER BY.
var afterOrder = []string{"LIMIT", "OFFSET", "ROWS", "RANGE", "UNION", "RETURNING", ";"}

func (s *statement) key(from, to int) {
	end := to
	if end-2 > from && s.word(end-2) == "NULLS" {
		end -= 2
	}
	if from >= end {
		return
	}
	begin, last := s.lexemes[from], s.lexemes[end-1]
	c := clause{begin.from, last.to, "~ DESC", "turned round", ""}
	switch {
	case last.text == opaqueText || end == from+1 && strings.HasPrefix(begin.text, "{"):
		c.instead, c.becomes = anyOrder, "any order"
	case last.text == "ASC":
		c = clause{last.from, last.to, "DESC", "turned round", s.text[begin.from:last.to]}
	case last.text == "DESC":
		c = clause{last.from, last.to, "ASC", "turned round", s.text[begin.from:last.to]}
	}
	c.name = "ORDER BY " + cmp.Or(c.name, s.text[c.from:c.to])
	s.found = append(s.found, c)
}

func (s *statement) isLock(i int) bool {
	return s.word(i) == "FOR" && slices.Contains([]string{"UPDATE", "SHARE", "NO", "KEY"}, s.word(i+1))
}

func (s *statement) lock(i int) {
	if !s.isLock(i) {
		return
	}
	end := i + 2
	for s.word(end) == "KEY" || s.word(end) == "UPDATE" {
		end++
	}
	if s.word(end) == "OF" {
		end += 2
	}
	switch s.word(end) {
	case "SKIP":
		s.drop(end, end+2)
		end += 2
	case "NOWAIT":
		s.drop(end, end+1)
		end++
	}
	s.drop(i, end)
}

// opaqueText is the text of a lexeme that is not known.
const opaqueText = "?"

func lexemes(text string, opaque func(rune) bool) (list []lexeme) {
	depth := 0
	for i := 0; i < len(text); {
		t := lexeme{from: i, depth: depth}
		switch c := text[i]; {
		case c == ' ' || c == '\n' || c == '\t':
			i++
			continue
		case strings.HasPrefix(text[i:], "--"):
			i += max(2, strings.IndexByte(text[i:], '\n'))
			continue
		case c == '\'' || c == '"':
			i = i + 1 + max(0, strings.IndexByte(text[i+1:], c)) + 1
		case strings.HasPrefix(text[i:], "{{"):
			i += max(2, strings.Index(text[i:], "}}")+2)
		case strings.HasPrefix(text[i:], "{"):
			i += max(1, strings.IndexByte(text[i:], '}')+1)
		case isWord(c) || c == '$':
			for i < len(text) && (isWord(text[i]) || text[i] == '$' ||
				text[i] == '.' && i+1 < len(text) && (isWord(text[i+1]) || text[i+1] == '"')) {
				i++
			}
		default:
			r, size := utf8.DecodeRuneInString(text[i:])
			i += size
			if opaque(r) {
				t.text = opaqueText
			}
		}
		t.to = i
		if t.text == "" {
			t.text = text[t.from:t.to]
		}
		switch t.text {
		case "(", "[", "CASE":
			depth++
		case ")", "]", "END":
			depth--
			t.depth = depth
		}
		list = append(list, t)
	}
	return list
}

func isWord(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// words say what is broken in the text, and how, as the lists have it; said is the code of what is not known.
func (c clause) words(text string, said func(rune) string) string {
	var name strings.Builder
	for _, r := range strings.Join(strings.Fields(cmp.Or(c.name, text[c.from:c.to])), " ") {
		if isUnknown(r) {
			name.WriteString(said(r))
		} else {
			name.WriteRune(r)
		}
	}
	const most = 100
	short := []rune(name.String())
	if len(short) > most {
		short = append(short[:most-2], []rune(" …")...)
	}
	return fmt.Sprintf("`%s` -> %s", string(short), c.becomes)
}
