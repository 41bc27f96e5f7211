package main

import (
	"go/ast"
	"go/token"
	"sort"
	"strings"
)

// site is one change of a statement.
type site struct {
	id     int
	folder string // seen from the root
	file   string // its name in the folder
	line   int
	where  string // function or variable
	change string // in words
}

// weaver inserts the switches of all sites of one file into its text.
type weaver struct {
	files  *token.FileSet
	text   []byte
	folder string
	file   string
	where  string

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

// nameOf returns the name of a function, with its receiver.
func nameOf(f *ast.FuncDecl) string {
	if f.Recv == nil || len(f.Recv.List) != 1 {
		return f.Name.Name
	}
	receiver := f.Recv.List[0].Type
	for {
		switch r := receiver.(type) {
		case *ast.StarExpr:
			receiver = r.X
			continue
		case *ast.IndexExpr:
			receiver = r.X
			continue
		case *ast.IndexListExpr:
			receiver = r.X
			continue
		case *ast.Ident:
			return r.Name + "." + f.Name.Name
		}
		return f.Name.Name
	}
}

// namesOf returns the names that a declaration gives.
func namesOf(s *ast.ValueSpec) string {
	names := make([]string, len(s.Names))
	for i, n := range s.Names {
		names[i] = n.Name
	}
	return strings.Join(names, ",")
}
