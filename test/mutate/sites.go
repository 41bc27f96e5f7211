package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"sort"
	"strings"

	"github.com/cdc-relay/cdc-relay/test/mutate/seen"
)

// site is one place where the code can be broken, and how.
type site struct {
	id     int
	folder string // seen from the root
	file   string // its name in the folder
	line   int
	where  string // function or variable
	rank   int    // lower: says more about what a test looks at
	change string // in words
}

// Ranks: a wrong text, or a function that does nothing, is noticed by tests that look at little.
const (
	rankSense = iota // the opposite of a condition
	rankStep         // a statement left out, an error kept to itself, a bound moved by one
	rankText         // a text left out
	rankAll          // a function that returns at once
)

// weaver inserts the switches of all sites of one file into its text.
type weaver struct {
	next   func(site) (int, bool) // gives the site its number, or refuses it
	files  *token.FileSet
	text   []byte
	folder string
	file   string
	where  string
	within []*ast.FuncType // functions around, the innermost last
	parent map[ast.Node]ast.Node

	order  int
	pieces []piece
}

// piece is text to insert at an offset, or, with cut, instead of so many bytes. At the same offset ends come before
// beginnings; of the ends the inner one is first, and of the beginnings the outer one.
type piece struct {
	at, cut int
	end     bool
	order   int
	text    string
}

func (w *weaver) offset(p token.Pos) int { return w.files.Position(p).Offset }

func (w *weaver) source(n ast.Node) string {
	text := strings.Join(strings.Fields(string(w.text[w.offset(n.Pos()):w.offset(n.End())])), " ")
	const most = 80
	if short := []rune(text); len(short) > most {
		text = string(short[:most-2]) + " …"
	}
	return strings.ReplaceAll(text, "`", "'")
}

// around adds a site and puts text before and after n; each %d in before becomes the site's number.
func (w *weaver) around(n ast.Node, rank int, before, after, format string, args ...any) {
	id, ok := w.add(n, rank, format, args...)
	if !ok {
		return
	}
	w.put(n, strings.ReplaceAll(before, "%d", fmt.Sprint(id)), strings.ReplaceAll(after, "%d", fmt.Sprint(id)))
}

func (w *weaver) add(n ast.Node, rank int, format string, args ...any) (int, bool) {
	return w.next(site{
		folder: w.folder, file: w.file, line: w.files.Position(n.Pos()).Line, where: w.where, rank: rank,
		change: fmt.Sprintf(format, args...),
	})
}

func (w *weaver) put(n ast.Node, before, after string) {
	w.order++
	w.pieces = append(w.pieces, piece{at: w.offset(n.Pos()), order: w.order, text: before})
	w.pieces = append(w.pieces, piece{at: w.offset(n.End()), end: true, order: -w.order, text: after})
}

func (w *weaver) woven() []byte {
	sort.SliceStable(w.pieces, func(i, j int) bool {
		a, b := w.pieces[i], w.pieces[j]
		if a.at != b.at {
			return a.at < b.at
		}
		if a.end != b.end {
			return a.end
		}
		return a.order < b.order
	})
	var out []byte
	at := 0
	for _, p := range w.pieces {
		out = append(out, w.text[at:p.at]...)
		out = append(out, p.text...)
		at = p.at + p.cut
	}
	out = append(out, w.text[at:]...)
	return append(out, "\nconst _ = mutant__.Sites\n"...) // so that the import is used
}

// weave goes through the functions and the values of variables.
func (w *weaver) weave(file *ast.File) {
	w.parent = map[ast.Node]ast.Node{}
	w.pieces = append(w.pieces, piece{at: w.offset(file.Name.End()), text: `; import mutant__ "` + switches + `"`})
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			w.where = seen.Name(d)
			if d.Body != nil {
				w.walk(d)
			}
		case *ast.GenDecl:
			if d.Tok != token.VAR {
				continue
			}
			for _, s := range d.Specs {
				w.where = seen.Values(s.(*ast.ValueSpec))
				for _, v := range s.(*ast.ValueSpec).Values {
					w.walk(v)
				}
			}
		}
	}
}

func (w *weaver) walk(root ast.Node) {
	var above []ast.Node
	ast.Inspect(root, func(n ast.Node) bool {
		if n == nil {
			last := above[len(above)-1]
			above = above[:len(above)-1]
			switch last.(type) {
			case *ast.FuncDecl, *ast.FuncLit:
				w.within = w.within[:len(w.within)-1]
			}
			return true
		}
		switch n := n.(type) {
		case *ast.StructType, *ast.InterfaceType, *ast.ArrayType, *ast.FuncType:
			return false // no code in types, and their constants must stay
		case *ast.GenDecl:
			if n.Tok == token.CONST {
				return false
			}
		}
		if len(above) > 0 {
			w.parent[n] = above[len(above)-1]
		}
		switch n := n.(type) {
		case *ast.FuncDecl:
			w.within = append(w.within, n.Type)
			w.function(n.Type, n.Body)
		case *ast.FuncLit:
			w.within = append(w.within, n.Type)
			w.function(n.Type, n.Body)
		case ast.Stmt:
			w.statement(n)
		case ast.Expr:
			if len(w.within) > 0 { // else the order in which variables get their values could change
				w.expression(n)
			}
		}
		above = append(above, n)
		return true
	})
}

// function lets a function return at once.
func (w *weaver) function(t *ast.FuncType, body *ast.BlockStmt) {
	if len(body.List) == 0 {
		return
	}
	id, ok := w.add(body, rankAll, "returns at once, with nothing done")
	if !ok {
		return
	}
	result := ""
	if t.Results != nil && len(t.Results.List[0].Names) == 0 {
		var zeros []string
		for _, r := range t.Results.List {
			zeros = append(zeros, "*new("+string(w.text[w.offset(r.Type.Pos()):w.offset(r.Type.End())])+")")
		}
		result = strings.Join(zeros, ", ")
	}
	w.order++
	w.pieces = append(w.pieces, piece{
		at: w.offset(body.Lbrace) + 1, order: w.order,
		text: fmt.Sprintf(" if mutant__.On(%d) { return %s }; ", id, result),
	})
}

// statement lets a statement be left out, and an error that is returned be nil.
func (w *weaver) statement(s ast.Stmt) {
	if r, ok := s.(*ast.ReturnStmt); ok {
		w.returned(r)
	}
	switch w.parent[s].(type) {
	case *ast.BlockStmt, *ast.CaseClause:
	case *ast.CommClause:
		if w.parent[s].(*ast.CommClause).Comm == s {
			return
		}
	default:
		return
	}
	switch s := s.(type) {
	case *ast.ExprStmt:
		if call, ok := s.X.(*ast.CallExpr); ok {
			if f, ok := call.Fun.(*ast.Ident); ok && f.Name == "panic" {
				return // it may stand for a return
			}
		}
	case *ast.IncDecStmt, *ast.SendStmt, *ast.DeferStmt, *ast.GoStmt, *ast.BranchStmt:
	case *ast.AssignStmt:
		if s.Tok == token.DEFINE {
			return
		}
	case *ast.ReturnStmt:
		if len(s.Results) > 0 || w.within[len(w.within)-1].Results != nil {
			return
		}
	default:
		return
	}
	w.around(s, rankStep, "if !mutant__.On(%d) { ", " }", "`%s` left out", w.source(s))
}

func (w *weaver) returned(r *ast.ReturnStmt) {
	results := w.within[len(w.within)-1].Results
	if results == nil || len(r.Results) != results.NumFields() {
		return
	}
	if t, ok := results.List[len(results.List)-1].Type.(*ast.Ident); !ok || t.Name != "error" {
		return
	}
	last := r.Results[len(r.Results)-1]
	if name, ok := last.(*ast.Ident); ok && name.Name == "nil" {
		return
	}
	w.around(last, rankStep, "mutant__.Err(%d, ", ")", "`%s` returns no error", w.source(r))
}

var moved = map[token.Token][2]string{
	token.LSS: {"Less", "<="}, token.LEQ: {"LessEqual", "<"}, token.GTR: {"Greater", ">="},
	token.GEQ: {"GreaterEqual", ">"},
}

// expression lets a condition be its opposite, a bound be one off, and a text be empty.
func (w *weaver) expression(e ast.Expr) {
	b, binary := e.(*ast.BinaryExpr)
	if w.isCondition(e) {
		opposite := "!(" + w.source(e) + ")"
		if u, ok := e.(*ast.UnaryExpr); ok {
			opposite = w.source(u.X)
		}
		w.around(e, rankSense, "((", ") != mutant__.On(%d))", "`%s` -> `%s`", w.source(e), opposite)
	}
	switch {
	case binary && moved[b.Op][0] != "":
		to := moved[b.Op]
		id, ok := w.add(e, rankStep, "`%s`: `%s` -> `%s`", w.source(e), b.Op, to[1])
		if !ok {
			return
		}
		w.put(e, fmt.Sprintf("mutant__.%s(%d, ", to[0], id), ")")
		w.order++
		w.pieces = append(w.pieces, piece{at: w.offset(b.OpPos), cut: len(b.Op.String()), order: w.order, text: ","})
	case binary && (b.Op == token.ADD || b.Op == token.SUB):
		if n, ok := b.Y.(*ast.BasicLit); ok && n.Kind == token.INT {
			w.around(e, rankStep, "mutant__.Plus(%d, ", ")", "`%s` -> `%s + 1`", w.source(e), w.source(e))
		}
	}
	if s, ok := e.(*ast.BasicLit); ok && s.Kind == token.STRING && len(s.Value) > 2 {
		w.around(e, rankText, "mutant__.Text(%d, ", ")", "`%s` -> `\"\"`", w.source(e))
	}
}

// isCondition tells whether e is a whole condition, or a comparison or junction within one.
func (w *weaver) isCondition(e ast.Expr) bool {
	switch p := w.parent[e].(type) {
	case *ast.IfStmt:
		return p.Cond == e
	case *ast.ForStmt:
		return p.Cond == e
	}
	switch e := e.(type) {
	case *ast.BinaryExpr:
		switch e.Op {
		case token.LAND, token.LOR, token.EQL, token.NEQ, token.LSS, token.LEQ, token.GTR, token.GEQ:
			return true
		}
	case *ast.UnaryExpr:
		return e.Op == token.NOT
	}
	return false
}
