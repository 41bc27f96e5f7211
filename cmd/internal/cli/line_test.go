package cli

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// zoo is a command line with a field of every kind.
type zoo struct {
	Flags

	Feed  feedCommand  `cmd:"" help:"Feed an animal."`
	Cages cagesCommand `cmd:"" help:"Cages: list."`
	Again struct {
		Clean cleanCommand `cmd:"" help:"Clean up."`
	} `embed:""`
}

type feedCommand struct {
	Common `embed:""`

	Animal string         `arg:"" enum:"ape,bear" help:"Which one."`
	With   []string       `arg:"" optional:"" help:"What."`
	Grams  []int          `help:"How much." default:"100,200"`
	After  time.Duration  `help:"When." default:"2m"`
	Until  *time.Duration `help:"How long." xor:"end"`
	Never  bool           `help:"Not at all." xor:"end"`
	Plan   string         `help:"A file." type:"path" placeholder:"FILE" empty:"no" env:"ZOO_FEED_PLAN"`
	Kind   string         `help:"How." default:"slow" enum:"slow,fast" short:"k"`
	ByHand bool           `help:"Without a bucket."`
}

// Common is what several commands have.
type Common struct {
	Who *string `help:"Who does it." placeholder:"NAME"`
}

func (feedCommand) Help() string { return "Examples:\n\n  zoo feed ape" }

func (c feedCommand) Run(a *App) error {
	until, who := "-", "-"
	if c.Until != nil {
		until = c.Until.String()
	}
	if c.Who != nil {
		who = *c.Who
	}
	fmt.Fprintln(a.Out, c.Animal, c.With, c.Grams, c.After, until, c.Never, c.Plan, c.Kind, c.ByHand, who, a.flags.Set)
	return nil
}

type cagesCommand struct {
	List listCommand `cmd:"" help:"List them."`
}

type listCommand struct {
	Row int `help:"Which row." required:"" env:"ZOO_ROW"`
}

func (c listCommand) Run(a *App) error {
	fmt.Fprintln(a.Out, "row", c.Row)
	return nil
}

type cleanCommand struct{}

func (cleanCommand) Run(*App) error { return nil }

func runZoo(environ []string, args ...string) (code int, out, errs string) {
	var c zoo
	p := Program{Name: "zoo", Description: "A zoo.", Commands: &c, Flags: &c.Flags, Build: Build{Version: "v1"}}
	var o, e bytes.Buffer
	code = p.Execute(args, Streams{Out: &o, Err: &e, Environ: environ})
	return code, o.String(), e.String()
}

// Each row is one thing that a tag says. Seen to fail with enum not looked at, with the path left as it is, and with xor and
// required passed over.
func TestCommandLineIsReadAsTheTagsSay(t *testing.T) {
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		environ, args string
		code          int
		want          string // in the output or, with another code than 0, in the errors
	}{
		{"", "feed ape", 0, "ape [] [100 200] 2m0s - false  slow false - []\n"},
		{"", "feed bear hay figs --grams 7 --who ann --never=yes", 0,
			"bear [hay figs] [7] 2m0s - true  slow false ann []\n"},
		{"", "feed ape --grams 1,2 --grams=0x3 --by-hand", 0, "[1 2 3] 2m0s - false  slow true"},
		{"", "feed --set=b=2,3 ape --set c=4", 0, "[b=2,3 c=4]"},
		{"", "--set b=2 feed -k fast ape --until=5s --after -1s", 0, "-1s 5s false  fast"},
		{"", "feed -kfast --plan x/y -- ape", 0, filepath.Join(here, "x/y") + " fast"},
		{"", "feed ape --never --until 5s", 2, "zoo: --until and --never can't be used together\nTry: zoo feed --help\n"},
		{"", "feed", 2, "zoo: an argument is missing: <animal>\nTry: zoo feed --help\n"},
		{"", "feed cat", 2, `zoo: <animal>: found "cat"; allowed: ape, bear`},
		{"", "feed ape --kind quick", 2, `zoo: --kind: found "quick"; allowed: slow, fast`},
		{"", "feed ape --grams=1,x", 2, `--grams: found "x"; allowed: a whole number`},
		{"", "feed ape --after soon", 2, `--after: found "soon"; allowed: a duration`},
		{"", "feed ape --by-hand=maybe", 2, `--by-hand: found "maybe"; allowed: true`},
		{"ZOO_ROW=x", "cages list", 2, `zoo: --row (ZOO_ROW): found "x"; allowed: a whole number`},
		{"ZOO_ROW=x", "clean", 0, ""}, // it is another command's
		{"", "feed ape --after", 2, "--after: found no value; needed: --after=DURATION"},
		{"", "feed ape --plan=", 2, `zoo: --plan: found ""; allowed: a text that is not empty`},
		{"ZOO_FEED_PLAN=", "feed ape", 2, `zoo: --plan (ZOO_FEED_PLAN): found ""; allowed: a text that is not empty`},
		{"", "feed ape --gram 1", 2, `zoo: unknown flag --gram, did you mean "--grams"?`},
		{"", "feed ape -x", 2, "zoo: unknown flag -x\nTry: zoo feed --help"},
		{"", "cages list", 2, "zoo: missing flags: --row=N\nTry: zoo cages list --help\n"},
		{"ZOO_ROW=3", "cages list", 0, "row 3\n"},
		{"", "cages list --row=4 5", 2, `zoo: unexpected argument "5"`},
		{"", "cages", 2, "zoo: a command is missing, one of: list\nTry: zoo cages --help\n"},
		{"", "cages lst", 2, `zoo: unknown command "lst", did you mean "list"?` + "\nTry: zoo cages --help\n"},
		{"", "fly --help", 2, `zoo: unknown command "fly"` + "\nTry: zoo --help\n"},
		{"", "--json", 2, "zoo: a command is missing, one of: feed, cages, clean\n"},
		{"", "cages --version", 0, "zoo v1\n"},
		{"", "clean", 0, ""},
		{"", "", 2, "Usage: zoo <command> [flags]\n\nA zoo.\n"},
		{"", "help cages list", 0, "Usage: zoo cages list --row N [flags]\n"},
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
		"Usage: zoo feed <animal> [<with> ...] [flags]\n", "\nFeed an animal.\n", "\nExamples:\n\n  zoo feed ape\n",
		"\nArguments:\n  <animal>      Which one.\n  [<with> ...]  What.\n", "\nFlags:\n",
		"      --who NAME ", "Who does it.\n", "      --grams N,...", "How much. (default 100,200)",
		"  -k, --kind KIND", "How. (default slow)\n", "      --by-hand ", "\nFlags of every command:\n  -h, --help ",
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

// A mistake of the program is seen by whoever starts it once. Seen to fail with either let through.
func TestCommandLineThatCannotBeMadePanics(t *testing.T) {
	for name, commands := range map[string]any{
		"a type": &struct {
			X float64 `help:"None."`
		}{},
		"a command": &struct {
			Do struct{} `cmd:"" help:"Nothing."`
		}{},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("want a panic")
				}
			}()
			_ = Program{Name: "x", Commands: commands, Flags: &Flags{}}.Parse(nil)
		})
	}
}
