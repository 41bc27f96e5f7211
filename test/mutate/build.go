package main

import (
	"context"
	"encoding/json"
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const module = "github.com/cdc-relay/cdc-relay"

// bed is the module with a switch at each site, and where its files are.
type bed struct {
	root    string         // of the module
	dir     string         // of what the run makes
	sites   []site         // by their numbers
	files   []fileSite     // those of the sites that are in files of SQL
	refused map[string]int // by place: what does not compile is taken away, texts first, then all
}

// place is a line of the module.
func place(folder, file string, line int) string { return fmt.Sprintf("%s/%s:%d", folder, file, line) }

func (b *bed) overlay() string { return filepath.Join(b.dir, "overlay.json") }
func (b *bed) order() string   { return filepath.Join(b.dir, "on") }

// leftWhole are folders in which nothing is broken. Code that picks processes and sends them signals would, broken,
// pick others: one change of a comparison in embedded/child freezes or kills everything on the machine, this program
// too.
var leftWhole = []string{"examples", "test/mutate", "embedded/child"}

// weave writes the woven files of the whole module, and which file stands for which.
func (b *bed) weave() error {
	b.sites = nil
	replace := map[string]string{}
	err := filepath.WalkDir(b.root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(b.root, path)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if path != b.root && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata") ||
				slices.Contains(leftWhole, rel) {
				return filepath.SkipDir
			}
			return nil
		}
		if filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		woven := filepath.Join(b.dir, "woven", rel)
		replace[path] = woven
		return b.weaveFile(path, rel, woven)
	})
	if err != nil {
		return err
	}
	return b.writeOverlay(replace, switchesText)
}

// writeOverlay tells the compiler which file stands for which, the package of the switches among them.
func (b *bed) writeOverlay(replace map[string]string, text string) error {
	text = fmt.Sprintf(text, len(b.sites), b.order())
	file := filepath.Join(b.dir, "woven", "mutant.go")
	replace[filepath.Join(b.root, strings.TrimPrefix(switches, module), "mutant.go")] = file
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return err
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return err
	}
	return os.WriteFile(b.overlay(), list, 0o644)
}

func (b *bed) weaveFile(path, rel, woven string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, text, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	w := &weaver{files: files, text: text, folder: filepath.ToSlash(filepath.Dir(rel)), file: filepath.Base(rel)}
	w.next = func(s site) (int, bool) {
		switch b.refused[place(s.folder, s.file, s.line)] {
		case 0:
		case 1:
			if s.rank == rankText {
				return 0, false
			}
		default:
			return 0, false
		}
		s.id = len(b.sites)
		b.sites = append(b.sites, s)
		return s.id, true
	}
	w.weave(file)
	if err := os.MkdirAll(filepath.Dir(woven), 0o755); err != nil {
		return err
	}
	return os.WriteFile(woven, w.woven(), 0o644)
}

var compileError = regexp.MustCompile(`(?m)^(?:\./)?([\w./-]+\.go):(\d+):\d+: `)

// build weaves, and takes switches away until the module compiles: not each text, for one, may be one at run time.
func (b *bed) build(ctx context.Context) error {
	for range 12 {
		if err := b.weave(); err != nil {
			return err
		}
		said, err := b.goTool(ctx, "build", "-gcflags=-e", "./...").CombinedOutput()
		if err == nil {
			return nil
		}
		found := false
		for _, m := range compileError.FindAllStringSubmatch(string(said), -1) {
			path := m[1]
			if !filepath.IsAbs(path) {
				path = filepath.Join(b.root, path)
			}
			rel, err := filepath.Rel(b.root, path)
			if err != nil {
				return err
			}
			rel = strings.TrimPrefix(filepath.ToSlash(rel), filepath.ToSlash(strings.TrimPrefix(b.dir, b.root+"/"))+"/woven/")
			line, err := strconv.Atoi(m[2])
			if err != nil {
				return err
			}
			b.refused[place(filepath.ToSlash(filepath.Dir(rel)), filepath.Base(rel), line)]++
			found = true
		}
		if !found {
			return fmt.Errorf("build the woven module: %w: %s", err, said)
		}
	}
	return fmt.Errorf("build the woven module: it does not compile whatever is taken away; see %s", b.dir)
}

// tests compiles the woven tests of a package.
func (b *bed) tests(ctx context.Context, folder string) (string, error) {
	binary := filepath.Join(b.dir, strings.ReplaceAll(folder, "/", "-")+".test")
	said, err := b.goTool(ctx, "test", "-c", "-vet=off", "-o", binary, "./"+folder).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the tests of %s: %w: %s", folder, err, said)
	}
	return binary, nil
}

func (b *bed) goTool(ctx context.Context, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, "go", args...)
	command.Dir = b.root
	command.Env = b.environ()
	return command
}

// environ makes also the builds that a test begins be woven ones.
func (b *bed) environ() []string {
	return append(os.Environ(), "GOFLAGS=-overlay="+b.overlay())
}
