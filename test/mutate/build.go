package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const module = "github.com/cdc-relay/cdc-relay"

// bed is the module with a switch at each site, and where its files are.
type bed struct {
	root  string     // of the module
	dir   string     // of what the run makes
	sites []site     // by their numbers
	files []fileSite // those of the sites that are in files of SQL
}

func (b *bed) overlay() string { return filepath.Join(b.dir, "overlay.json") }
func (b *bed) order() string   { return filepath.Join(b.dir, "on") }

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
