package cli

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// zoo is a command line with a flag of every kind.
func zoo() Program {
	return Program{Name: "zoo", Description: "A zoo.", Build: Build{Version: "v1"}, Commands: []*cobra.Command{
		feed(),
		Group("cages", "Cages: list.", "", list()),
		Command("clean", "Clean up.", "", func(*App) error { return nil }),
	}}
}

func feed() *cobra.Command {
	var animal, plan, kind, who string
	var after, until time.Duration
	var never bool
	var grams []int
	kind = "slow"
	c := Command("feed", "Feed an animal.", "Examples:\n\n  zoo feed ape", func(a *App) error {
		fmt.Fprintln(a.Out, animal, grams, after, until, never, Path(plan), kind, who, a.flags.set, a.Given("who"))
		return nil
	})
	Argument(c, "animal", "Which one.", &animal)
	c.ValidArgs = []string{"ape", "bear"}
	f := c.Flags()
	f.StringVar(&who, "who", "", "Who does it.")
	f.IntSliceVar(&grams, "grams", []int{100, 200}, "How much.")
	f.DurationVar(&after, "after", 2*time.Minute, "When.")
	f.DurationVar(&until, "until", 0, "How long.")
	f.BoolVar(&never, "never", false, "Not at all.")
	f.Var(&TextFlag{Into: &plan, Shown: "FILE", NotEmpty: true}, "plan", "A file.")
	f.VarP(&TextFlag{Into: &kind, OneOf: []string{"slow", "fast"}}, "kind", "k", "How.")
	c.MarkFlagsMutuallyExclusive("until", "never")
	return c
}

func list() *cobra.Command {
	var row int
	var cages []string
	c := Command("list", "List them.", "", func(a *App) error {
		fmt.Fprintln(a.Out, "row", row, cages)
		return nil
	})
	Arguments(c, "cage", "Which ones.", &cages)
	c.Flags().IntVar(&row, "row", 0, "Which row.")
	_ = c.MarkFlagRequired("row")
	return c
}

func runZoo(environ []string, args ...string) (code int, out, errs string) {
	var o, e bytes.Buffer
	code = zoo().Execute(args, Streams{Out: &o, Err: &e, Environ: environ})
	return code, o.String(), e.String()
}

// Each row is one property of the command line. Seen to fail with OneOf and with NotEmpty not looked at, with
// the path left as it is, with arguments that are too many let through, and with the variable's mistake dropped.
func TestCommandLineIsReadOrRefused(t *testing.T) {
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		environ, args string
		code          int
		want          string // in the output or, with another code than 0, in the errors
	}{
		{"", "feed ape", 0, "ape [100 200] 2m0s 0s false  slow  [] false\n"},
		{"", "feed bear --grams 7 --who ann --never=true", 0, "bear [7] 2m0s 0s true  slow ann [] true\n"},
		{"", "feed ape --who=", 0, " slow  [] true\n"},
		{"", "feed ape --grams 1,2 --grams=3", 0, "[1 2 3] 2m0s"},
		{"", "feed --set=b=2,3 ape --set c=4", 0, "[b=2,3 c=4]"},
		{"", "--set b=2 feed -k fast ape --until=5s --after -1s", 0, "-1s 5s false  fast"},
		{"", "feed -kfast --plan x/y -- ape", 0, filepath.Join(here, "x/y") + " fast"},
		{"", "feed ape --never --until 5s", 2, "none of the others can be; [never until] were all set"},
		{"", "feed", 2, "zoo: an argument is missing: <animal>\nTry: zoo feed --help\n"},
		{"", "feed cat", 2, `zoo: <animal>: found "cat"; allowed: ape, bear`},
		{"", "feed ape bear", 2, `zoo: unexpected argument "bear"`},
		{"", "feed ape --kind quick", 2, `zoo: --kind: found "quick"; allowed: slow, fast`},
		{"", "feed ape --grams=1,x", 2, `--grams: found "1,x"; allowed: a whole number`},
		{"", "feed ape --after soon", 2, `--after: found "soon"; allowed: a duration`},
		{"", "feed ape --never=maybe", 2, `--never: found "maybe"; allowed: true, false`},
		{"CDC_RELAY_OUTPUT=xml", "clean", 2, `zoo: --output (CDC_RELAY_OUTPUT): found "xml"; allowed: table, json, yaml`},
		{"CDC_RELAY_OUTPUT=json", "clean", 0, ""},
		{"", "feed ape --after", 2, "--after: found no value; needed: --after=DURATION"},
		{"", "feed ape --plan --never", 2, "--plan: found no value, and the flag --never behind it; needed: --plan="},
		{"", "feed ape --plan=", 2, `zoo: --plan: found ""; allowed: a text that is not empty`},
		{"", "feed ape --gram 1", 2, `zoo: unknown flag --gram, did you mean "--grams"?`},
		{"", "feed ape -x", 2, "zoo: unknown flag -x\nTry: zoo feed --help"},
		{"", "cages list", 2, "zoo: missing flags: --row=N\nTry: zoo cages list --help\n"},
		{"", "cages list --row=4 5 6", 0, "row 4 [5 6]\n"},
		{"", "clean 5", 2, `zoo: unexpected argument "5"`},
		{"", "cages", 2, "zoo: a command is missing, one of: list\nTry: zoo cages --help\n"},
		{"", "cages lst", 2, `zoo: unknown command "lst", did you mean "list"?` + "\nTry: zoo cages --help\n"},
		{"", "fly --help", 2, `zoo: unknown command "fly"` + "\nTry: zoo --help\n"},
		{"", "--json", 2, "zoo: a command is missing, one of: feed, cages, clean\n"},
		{"", "cages --version", 0, "zoo v1\n"},
		{"", "clean", 0, ""},
		{"", "", 2, "Usage: zoo <command> [flags]\n\nA zoo.\n"},
		{"", "help cages list", 0, "Usage: zoo cages list [<cage> ...] --row N [flags]\n"},
	} {
		code, out, errs := runZoo(strings.Fields(row.environ), strings.Fields(row.args)...)
		said, other := out, errs
		if row.code != ExitDone {
			said, other = errs, out
		}
		if code != row.code || !strings.Contains(said, row.want) || other != "" {
			t.Errorf("%s zoo %s: got %d, output %q, errors %q; want %d, %q", row.environ, row.args, code, out, errs, row.code,
				row.want)
		}
	}
}

// Breaks it catches: a command, a flag or an argument that --help hides, or a hidden one that it shows. Seen to fail
// with a command's own flags left out, and with the keys that are hidden shown.
func TestHelpShowsWhatThereIs(t *testing.T) {
	_, out, _ := runZoo(nil, "feed", "--help")
	for _, want := range []string{
		"Usage: zoo feed <animal> [flags]\n", "\nFeed an animal.\n", "\nExamples:\n\n  zoo feed ape\n",
		"\nArguments:\n  <animal>  Which one.\n", "\nFlags:\n",
		"      --who WHO ", "Who does it.\n", "      --grams N,...", "How much. (default 100,200)",
		"  -k, --kind KIND", "How. (default slow)\n", "When. (default 2m)\n", "\nFlags of every command:\n  -h, --help ",
		"\nConfiguration:\n", "      --postgres-url VALUE ",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("there is no %q in:\n%s", want, out)
		}
	}
	if strings.Contains(out, "kafka-linger") {
		t.Errorf("a hidden flag is in:\n%s", out)
	}
	_, out, _ = runZoo(nil, "--help")
	const commands = "\nCommands:\n  feed   Feed an animal.\n  cages  Cages: list.\n  clean  Clean up.\n"
	if !strings.Contains(out, commands) {
		t.Errorf("there is no %q in:\n%s", commands, out)
	}
}
