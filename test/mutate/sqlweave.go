package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// limitsPath is the package of db.Limits, quoted.
const limitsPath = `"` + module + `/store/internal/db"`

// sqlFolders are those whose statements are broken.
const sqlFolders = "internal/store/internal"

// sqlWeaver puts switches into the statements of one package: into the texts, and where a transaction gets its commit
// level.
type sqlWeaver struct {
	next  func(site) int
	files *token.FileSet
	vars  map[string]bool // constants of the package that are variables now
	names map[string]int  // how often a change of a function was seen
}

// unknown is the first of the runes that stand for parts of a text that are not literals.
const unknown = '\ue000'

func isUnknown(r rune) bool { return r >= unknown && r < unknown+0x1000 }

// weaveSQL writes the woven files of the store's rooms. Nothing else in the module is changed.
func (b *bed) weaveSQL() (replace map[string]string, err error) {
	b.sites = nil
	replace = map[string]string{}
	folders, err := filepath.Glob(filepath.Join(b.root, sqlFolders, "*"))
	if err != nil {
		return nil, err
	}
	for _, folder := range append(folders, filepath.Join(b.root, filesFolder)) {
		w := &sqlWeaver{files: token.NewFileSet(), vars: map[string]bool{}, names: map[string]int{}}
		w.next = func(s site) int {
			s.id = len(b.sites)
			b.sites = append(b.sites, s)
			return s.id
		}
		files, err := filepath.Glob(filepath.Join(folder, "*.go"))
		if err != nil {
			return nil, err
		}
		if err := w.weaveFolder(b, files, replace); err != nil {
			return nil, err
		}
	}
	return replace, b.filesSQL()
}

func (w *sqlWeaver) weaveFolder(b *bed, paths []string, replace map[string]string) error {
	var all []*sqlFile
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(w.files, path, text, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(b.root, path)
		if err != nil {
			return err
		}
		f := &sqlFile{w: w, weaver: weaver{files: w.files, text: text, folder: filepath.ToSlash(filepath.Dir(rel)),
			file: filepath.Base(rel)}, syntax: file, path: path, rel: rel}
		f.decls()
		all = append(all, f)
	}
	for again := true; again; { // a constant that is made of one that is a variable now
		again = false
		for _, f := range all {
			again = f.follow() || again
		}
	}
	for _, f := range all {
		if len(f.pieces) == 0 {
			continue
		}
		text := `; import mutant__ "` + switches + `"`
		isLimits := func(i *ast.ImportSpec) bool { return i.Path.Value == limitsPath }
		if f.limited && !slices.ContainsFunc(f.syntax.Imports, isLimits) {
			text += `; import ` + limitsPath
		}
		f.pieces = append(f.pieces, piece{at: f.offset(f.syntax.Name.End()), text: text})
		woven := filepath.Join(b.dir, "woven", f.rel)
		if err := os.MkdirAll(filepath.Dir(woven), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(woven, f.woven(), 0o644); err != nil {
			return err
		}
		replace[f.path] = woven
	}
	return nil
}

// sqlFile is one file on its way.
type sqlFile struct {
	weaver
	w         *sqlWeaver
	syntax    *ast.File
	path, rel string
	varred    map[*ast.GenDecl]bool
	limited   bool // it names db.Limits
}

func (f *sqlFile) decls() {
	f.varred = map[*ast.GenDecl]bool{}
	for _, d := range f.syntax.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			f.where = nameOf(d)
			f.walkSQL(d, true)
		case *ast.GenDecl:
			if d.Tok != token.CONST && d.Tok != token.VAR {
				continue
			}
			before := len(f.pieces)
			for _, s := range d.Specs {
				f.where = namesOf(s.(*ast.ValueSpec))
				f.walkSQL(s, false)
			}
			if len(f.pieces) > before && d.Tok == token.CONST {
				f.makeVar(d)
			}
		}
	}
}

func (f *sqlFile) makeVar(d *ast.GenDecl) {
	f.varred[d] = true
	f.pieces = append(f.pieces, piece{at: f.offset(d.TokPos), cut: len("const"), text: "var"})
	for _, s := range d.Specs {
		for _, n := range s.(*ast.ValueSpec).Names {
			f.w.vars[n.Name] = true
		}
	}
}

func (f *sqlFile) follow() (changed bool) {
	for _, d := range f.syntax.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.CONST || f.varred[g] {
			continue
		}
		uses := false
		ast.Inspect(g, func(n ast.Node) bool {
			if v, ok := n.(*ast.ValueSpec); ok {
				for _, value := range v.Values {
					ast.Inspect(value, func(n ast.Node) bool {
						if id, ok := n.(*ast.Ident); ok && f.w.vars[id.Name] {
							uses = true
						}
						return true
					})
				}
			}
			return true
		})
		if uses {
			f.makeVar(g)
			changed = true
		}
	}
	return changed
}

// walkSQL finds texts, and in functions what sets the level of a commit.
func (f *sqlFile) walkSQL(root ast.Node, function bool) {
	ast.Inspect(root, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.DeclStmt:
			if d := n.Decl.(*ast.GenDecl); d.Tok == token.CONST {
				before := len(f.pieces)
				for _, s := range d.Specs {
					f.walkSQL(s, function)
				}
				if len(f.pieces) > before {
					f.pieces = append(f.pieces, piece{at: f.offset(d.TokPos), cut: len("const"), text: "var"})
				}
				return false
			}
		case *ast.BinaryExpr:
			if leaves := f.leaves(n, nil); n.Op == token.ADD && hasText(leaves) {
				f.chain(leaves)
				for _, l := range leaves {
					if _, literal := l.(*ast.BasicLit); !literal {
						f.walkSQL(l, function)
					}
				}
				return false
			}
		case *ast.BasicLit:
			if n.Kind == token.STRING {
				f.chain([]ast.Expr{n})
			}
		case *ast.CallExpr:
			if function {
				for _, a := range n.Args {
					f.limits(a)
				}
				if s, ok := n.Fun.(*ast.SelectorExpr); ok && (s.Sel.Name == "SQL" || s.Sel.Name == "printing") {
					f.limits(s.X)
				}
			}
		case *ast.ExprStmt:
			if function && addsCondition(n.X) {
				f.site(n, "if !mutant__.On(%d) { ", " }", "`%s` left out", f.source(n))
			}
		case *ast.AssignStmt:
			if s, ok := n.Lhs[0].(*ast.SelectorExpr); ok && function {
				if s.Sel.Name == "Commit" {
					f.site(n, "if !mutant__.On(%d) { ", " }", "`%s` left out", f.source(n))
				}
				if s.Sel.Name == "DialFunc" {
					f.put(n.Rhs[0], "mutant__.Dial(", ")")
				}
			}
			if len(n.Rhs) == 1 && function {
				f.limits(n.Rhs[0])
				f.reads(n.Rhs[0])
			}
		}
		return true
	})
}

// reads puts a switch where a file of SQL is read.
func (f *sqlFile) reads(e ast.Expr) {
	call, ok := e.(*ast.CallExpr)
	if !ok || f.folder != filesFolder {
		return
	}
	if s, ok := call.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "ReadFile" {
		f.put(e, "mutant__.File("+f.source(call.Args[0])+")(", ")")
	}
}

// addsCondition reports whether a call joins one more condition to a statement.
func addsCondition(e ast.Expr) bool {
	call, ok := e.(*ast.CallExpr)
	if !ok || len(call.Args) != 2 {
		return false
	}
	switch called := call.Fun.(type) {
	case *ast.Ident:
		return called.Name == "where"
	case *ast.SelectorExpr:
		return called.Sel.Name == "add"
	}
	return false
}

// leveled are the limits that say what a commit waits for; they are known by their names, whose declarations are in
// the store.
var leveled = []string{"Writing", "Noting", "migrating", "takingOver", "snapshotting", "scanningFenced", "mirroring",
	"pruning"}

// limits puts a switch where limits with a level of commit are used: without it, the level is the server's default.
func (f *sqlFile) limits(e ast.Expr) {
	name := ""
	switch e := e.(type) {
	case *ast.Ident:
		name = e.Name
	case *ast.SelectorExpr:
		name = e.Sel.Name
	case *ast.CompositeLit:
		if s, ok := e.Type.(*ast.SelectorExpr); ok && s.Sel.Name == "Limits" {
			for _, v := range e.Elts {
				if kv, ok := v.(*ast.KeyValueExpr); ok && kv.Key.(*ast.Ident).Name == "Commit" {
					name = leveled[0]
				}
			}
		}
	}
	if !slices.Contains(leveled, name) {
		return
	}
	kind := "Limits"
	if f.folder != sqlFolders+"/db" {
		kind, f.limited = "db.Limits", true
	}
	f.site(e, "func() "+kind+" { l := ", "; if mutant__.On(%d) { l.Commit = \"\" }; return l }()",
		"`%s` without its synchronous_commit", f.source(e))
}

func (f *sqlFile) site(n ast.Node, before, after, format string, args ...any) {
	id := f.newSite(n.Pos(), fmt.Sprintf(format, args...))
	f.put(n, strings.ReplaceAll(before, "%d", fmt.Sprint(id)), strings.ReplaceAll(after, "%d", fmt.Sprint(id)))
}

func (f *sqlFile) newSite(at token.Pos, change string) int {
	key := f.where + "\t" + change
	f.w.names[key]++
	if n := f.w.names[key]; n > 1 {
		change += fmt.Sprintf(" (%d)", n)
	}
	return f.w.next(site{folder: f.folder, file: f.file, line: f.files.Position(at).Line, where: f.where, change: change})
}

func (f *sqlFile) leaves(e ast.Expr, list []ast.Expr) []ast.Expr {
	if b, ok := e.(*ast.BinaryExpr); ok && b.Op == token.ADD {
		return f.leaves(b.Y, f.leaves(b.X, list))
	}
	return append(list, e)
}

func hasText(leaves []ast.Expr) bool {
	return slices.ContainsFunc(leaves, func(e ast.Expr) bool {
		l, ok := e.(*ast.BasicLit)
		return ok && l.Kind == token.STRING
	})
}

// at is a place in the source: of each byte of a text.
type at struct {
	offset int
	quote  byte // of the literal; 0: before or behind a whole expression
}

// chain puts switches into a text that is joined of literals and of what is not known before it runs.
func (f *sqlFile) chain(leaves []ast.Expr) {
	var text strings.Builder
	var from, to []at // of each byte: where a switch begins in front of it, and where it ends behind it
	for i, leaf := range leaves {
		l, ok := leaf.(*ast.BasicLit)
		if !ok || l.Kind != token.STRING {
			text.WriteRune(unknown + rune(i))
			for range utf8.RuneLen(unknown) {
				from, to = append(from, at{offset: f.offset(leaf.Pos())}), append(to, at{offset: f.offset(leaf.End())})
			}
			continue
		}
		quote := l.Value[0]
		offset, rest := f.offset(l.Pos())+1, l.Value[1:len(l.Value)-1]
		for len(rest) > 0 {
			value, tail := rest[:1], rest[1:]
			if quote == '"' {
				r, _, t, err := strconv.UnquoteChar(rest, quote)
				if err != nil {
					return
				}
				value, tail = string(r), t
			}
			for range len(value) {
				from, to = append(from, at{offset, quote}), append(to, at{offset + len(rest) - len(tail), quote})
			}
			text.WriteString(value)
			offset, rest = offset+len(rest)-len(tail), tail
		}
	}
	whole := text.String()
	if !isSQL(whole) {
		return
	}
	for _, c := range clauses(whole, isUnknown) {
		begin, end := from[c.from], to[c.to-1]
		id := f.newSite(leaves[0].Pos(), c.words(whole, func(r rune) string { return f.source(leaves[r-unknown]) }))
		f.order++
		opening, closing := fmt.Sprintf("mutant__.SQL(%d, %q, ", id, c.instead), ")"
		if q := string(begin.quote); begin.quote != 0 {
			opening = q + "+" + opening + q
		}
		if q := string(end.quote); end.quote != 0 {
			closing = q + closing + "+" + q
		}
		f.pieces = append(f.pieces, piece{at: begin.offset, order: f.order, text: opening},
			piece{at: end.offset, end: true, order: -f.order, text: closing})
	}
}

func isSQL(text string) bool {
	for _, word := range []string{"SELECT", "WHERE", " AND ", "UPDATE", "DELETE", "FOR SHARE", " OR ", "ORDER BY", "LIMIT",
		"ON CONFLICT"} {
		if strings.Contains(text, word) {
			return true
		}
	}
	return false
}
