package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/config"
)

// inline is a command between backquotes; the other kind has a line of its own in a block of code.
var inline = regexp.MustCompile("`cdc-relay ([a-z][^`]*)`")

// word is one of a command line: quotes keep spaces together, and go.
var word = regexp.MustCompile(`(?:[^\s'"]+|'[^']*'|"[^"]*")+`)

// arguments are the arguments of a command as a shell would have them, up to a comment, a pipe or the end of the
// command.
func arguments(command string) (args []string) {
	for _, w := range word.FindAllString(command, -1) {
		switch {
		case w[0] == '#', w == "|", w == "&&", w == "&", w == ";", w == "\\", w == "…", w[0] == '>',
			strings.HasPrefix(w, "2>"):
			return args
		case w[0] == '$': // flags that the page defines
			continue
		}
		last := w[len(w)-1] == ';'
		args = append(args, strings.NewReplacer(`"`, "", `'`, "", ";", "").Replace(w))
		if last {
			return args
		}
	}
	return args
}

// commandsIn are the commands that a text shows, by the text's own words.
func commandsIn(text string) (commands []string) {
	for line := range strings.Lines(text) {
		if command, is := strings.CutPrefix(strings.TrimPrefix(strings.TrimSpace(line), "$ "), "cdc-relay "); is {
			if strings.HasPrefix(line, "  ") || fenced(text, line) {
				command, _, _ = strings.Cut(command, "`") // the end of a help text in the source
				commands = append(commands, strings.Trim(command, " `\n"))
			}
			continue
		}
		for _, found := range inline.FindAllStringSubmatch(line, -1) {
			commands = append(commands, found[1])
		}
	}
	return commands
}

// fenced reports that the line stands between two fences.
func fenced(text, line string) bool {
	before, _, _ := strings.Cut(text, line)
	return strings.Count(before, "```")%2 == 1
}

// Breaks caught: a page or a help text with a command or a flag that there is not. Seen to fail with a flag misspelt in
// a page.
func TestCommandsThatAreWrittenDownExist(t *testing.T) {
	const root = "../.."
	found := 0
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{".git", "bin", "dist", ".cache", "testdata"}, entry.Name()):
			return filepath.SkipDir
		case !strings.HasSuffix(path, ".md") && (!strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go")),
			entry.Name() == "CHANGELOG.md":
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, command := range commandsIn(strings.ReplaceAll(string(text), `\n`, "\n")) {
			found++
			if err := understood(arguments(command)); err != nil {
				t.Errorf("%s: cdc-relay %s: %v", strings.TrimPrefix(path, root+"/"), command, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if found < 100 {
		t.Errorf("found %d commands, which cannot be all", found)
	}
}

// understood parses a command line and does nothing.
func understood(args []string) error {
	if n := len(args); n > 0 && strings.HasPrefix(args[n-1], "--") && !strings.Contains(args[n-1], "=") {
		if understoodExactly(args) == nil {
			return nil
		}
		args = append(args, "1") // prose names a flag and leaves its value out
	}
	return understoodExactly(args)
}

func understoodExactly(args []string) error { return program().Parse(args) }

// helpOf returns the output of --help for a command.
func helpOf(t *testing.T, command string) string {
	t.Helper()
	var out, errs bytes.Buffer
	args := append(strings.Fields(command), "--help")
	if code := program().Execute(args, cli.Streams{Out: &out, Err: &errs}); code != exitDone {
		t.Fatalf("cdc-relay %s --help: got exit code %d: %s", command, code, &errs)
	}
	return out.String()
}

// commandsBelow returns the commands below one, as in "slot drop"; those with subcommands are among them.
func commandsBelow(t *testing.T, command string) (names []string) {
	t.Helper()
	_, list, _ := strings.Cut(helpOf(t, command), "\nCommands:\n")
	list, _, _ = strings.Cut(list, "\n\n")
	for line := range strings.Lines(list) {
		name := strings.TrimSpace(command + " " + strings.Fields(line)[0])
		names = append(append(names, name), commandsBelow(t, name)...)
	}
	return names
}

// flagLine matches the line of a flag in a help text.
var flagLine = regexp.MustCompile(`(?m)^ +(?:-., )?--([a-z-]+)`)

// Set once in a pod's environment, the answer to a safety question would hold for every command that is run there. So
// no flag of a command has a variable, and one that looks like it is refused. Seen to fail with a variable for slot
// drop --yes.
func TestOnlyConfigOutputAndKeysAreReadFromTheEnvironment(t *testing.T) {
	t.Parallel()
	taken := map[string]bool{"CDC_RELAY_CONFIG": true, "CDC_RELAY_OUTPUT": true}
	for _, key := range config.Keys() {
		taken[key.Env] = true
	}
	var environ, refused []string
	flags := 0
	for _, command := range append(commandsBelow(t, ""), "") {
		for _, flag := range flagLine.FindAllStringSubmatch(helpOf(t, command), -1) {
			flags++
			name := "CDC_RELAY_" + strings.ToUpper(strings.NewReplacer(" ", "_", "-", "_").Replace(
				strings.TrimSpace(command+" "+flag[1])))
			if !taken[name] {
				taken[name] = true
				environ = append(environ, name+"=true")
				refused = append(refused, name+": unknown key")
			}
		}
	}
	if flags < 200 {
		t.Errorf("found %d flags, which cannot be all", flags)
	}
	cdcRelay(t, environ, "check").want(t, exitUsage, nil, refused)
}

// Break it catches: a command that the page of all commands does not have. Seen to fail with a row taken out of it.
func TestPageOfCommandsHasAll(t *testing.T) {
	page, err := os.ReadFile("../../docs/commands.md")
	if err != nil {
		t.Fatal(err)
	}
	names := commandsBelow(t, "")
	for _, name := range names {
		if len(commandsBelow(t, name)) > 0 {
			continue
		}
		if !regexp.MustCompile("`" + regexp.QuoteMeta(name) + "[` ]").Match(page) {
			t.Errorf("docs/commands.md has no %q", name)
		}
	}
	if len(names) < 30 {
		t.Errorf("got %d commands, which cannot be all: %v", len(names), names)
	}
}
