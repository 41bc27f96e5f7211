package main

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// clause is a part of the text of a statement that can be dropped.
type clause struct {
	from, to int
	instead  string // "true" for a condition among others that must hold, "false" for one of which one must, "" for a lock
}

// lexeme is a word, a sign, or a text in quotes. Its depth counts brackets, and CASE as one.
type lexeme struct {
	from, to, depth int
	text            string
}

// clauses finds the conditions and locks of a statement, or of a part of one: every conjunct of every WHERE, HAVING
// and ON, every operand of an OR among them, every FOR UPDATE and the like, and every SKIP LOCKED. It reads the SQL
// that the store writes, not any SQL. opaque are the runes that stand for what is not known, such as the value of a
// variable.
func clauses(text string, opaque func(rune) bool) []clause {
	s := &statement{lexemes: lexemes(text, opaque)}
	if s.isCondition() {
		s.region(0)
	}
	for i, t := range s.lexemes {
		switch {
		case t.text == "WHERE" || t.text == "HAVING" || t.text == "ON" && s.word(i+1) != "CONFLICT":
			s.region(i + 1)
		case t.text == "FOR":
			s.lock(i)
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
	"GROUP", "ORDER", "LIMIT", "RETURNING", "UNION", "EXCEPT", "WINDOW", "HAVING", "WHERE", "JOIN", "LEFT", "CROSS", "ON",
	";", ",",
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
			s.add(a[0], a[1], "false")
		}
		conjuncts := s.cut(a[0], a[1], "AND")
		for _, c := range conjuncts {
			if len(conjuncts) > 1 || len(alternatives) == 1 {
				s.add(c[0], c[1], "true")
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

func (s *statement) add(from, to int, instead string) {
	for to-1 > from && s.lexemes[to-1].text == opaqueText { // what may follow, or not, is no part of it
		to--
	}
	if from < to {
		s.found = append(s.found, clause{s.lexemes[from].from, s.lexemes[to-1].to, instead})
	}
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
	if s.word(end) == "SKIP" {
		s.found = append(s.found, clause{s.lexemes[end].from, s.lexemes[end+1].to, ""})
		end += 2
	}
	s.found = append(s.found, clause{s.lexemes[i].from, s.lexemes[end-1].to, ""})
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
		case c == '\'' || c == '"':
			i = i + 1 + max(0, strings.IndexByte(text[i+1:], c)) + 1
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
