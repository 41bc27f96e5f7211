package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// appKey is the key of the context value that holds the App of a command line.
type appKey struct{}

// argumentsOf is the annotation of a command with the lines of its arguments in --help.
const argumentsOf = "arguments"

// Commands and flags stand in the order in which the program lists them.
func init() { cobra.EnableCommandSorting = false }

// FlagSet is flags, and arguments, that can be added to a command.
type FlagSet interface{ AddTo(*cobra.Command) }

// Command returns a command that calls run.
func Command(name, short, long string, run func(*App) error, flags ...FlagSet) *cobra.Command {
	c := &cobra.Command{
		Use: name, Short: short, Long: long, SilenceErrors: true, SilenceUsage: true, DisableFlagsInUseLine: true,
		Args: arguments(0, func([]string) {}),
		RunE: func(c *cobra.Command, _ []string) error {
			a := appOf(c)
			a.command, a.run = c, run
			return nil
		},
	}
	c.Flags().SortFlags = false
	for _, set := range flags {
		set.AddTo(c)
	}
	return c
}

// Group returns a command that only has subcommands.
func Group(name, short, long string, commands ...*cobra.Command) *cobra.Command {
	c := Command(name, short, long, nil)
	c.AddCommand(commands...)
	return c
}

func appOf(c *cobra.Command) *App { return c.Context().Value(appKey{}).(*App) }

// Argument makes a command take one argument.
func Argument(c *cobra.Command, name, help string, into *string) {
	describe(c, "<"+name+">", help)
	c.Args = arguments(1, func(args []string) { *into = args[0] })
}

// Arguments makes a command take any number of arguments.
func Arguments(c *cobra.Command, name, help string, into *[]string) {
	describe(c, "[<"+name+"> ...]", help)
	c.Args = arguments(-1, func(args []string) { *into = args })
}

func describe(c *cobra.Command, shown, help string) {
	c.Use += " " + shown
	c.Annotations = map[string]string{argumentsOf: shown + "\t" + help}
}

// arguments checks the number of arguments, -1 for any, and hands them to take.
func arguments(n int, take func([]string)) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		a := appOf(c)
		switch {
		case a.flags.version:
			return errVersion
		case n > len(args):
			return fmt.Errorf("an argument is missing: %s", c.Use[len(c.Name())+1:])
		case n >= 0 && n < len(args):
			return unexpected(c, args[n:])
		}
		for _, text := range args {
			if c.ValidArgs != nil && !slices.Contains(c.ValidArgs, text) {
				shown, _, _ := strings.Cut(c.Annotations[argumentsOf], "\t")
				return fmt.Errorf("%s: found %q; allowed: %s", shown, text, strings.Join(c.ValidArgs, ", "))
			}
		}
		take(args)
		var missing []string
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if required(f) && !f.Changed {
				missing = append(missing, "--"+f.Name+"="+placeholder(f))
			}
		})
		if len(missing) > 0 {
			return fmt.Errorf("missing flags: %s", strings.Join(missing, ", "))
		}
		return a.flags.wrong
	}
}

// flags are those that every command takes.
type flags struct {
	config, output       string
	set                  []string
	json, quiet, version bool
	wrong                error // in the environment
}

// ownEnv are the variables of flags that are not configuration keys. An answer to a safety question must never be
// among them: set once, it would answer for every later command.
var ownEnv = map[string]string{"config": "CDC_RELAY_CONFIG", "output": "CDC_RELAY_OUTPUT"}

// add adds the flags to the root command, with the values of their variables.
func (own *flags) add(root *cobra.Command, environ map[string]string) {
	f := root.PersistentFlags()
	f.SortFlags = false
	f.BoolP("help", "h", false, "Show context-sensitive help.")
	f.Var(&TextFlag{Into: &own.config, Shown: "FILE"}, "config", "YAML file with the configuration ($CDC_RELAY_CONFIG)")
	f.StringArrayVar(&own.set, "set", nil, "Set any configuration key; may be repeated. Every key also has a flag: "+
		"--postgres-slot for postgres.slot.")
	_ = f.SetAnnotation("set", shownAs, []string{"KEY=VALUE"})
	f.BoolVar(&own.json, "json", false, "Print JSON: short for -o json.")
	own.output = "table"
	f.VarP(&TextFlag{Into: &own.output, OneOf: []string{"table", "json", "yaml"}}, "output", "o",
		"How to print: table, json or yaml ($CDC_RELAY_OUTPUT)")
	f.BoolVarP(&own.quiet, "quiet", "q", false, "Suppress output; check the exit code.")
	f.BoolVar(&own.version, "version", false, "Print the version.")
	for name, variable := range ownEnv {
		if text, found := environ[variable]; found {
			if err := f.Lookup(name).Value.Set(text); err != nil {
				own.wrong = fmt.Errorf("--%s (%s): %w", name, variable, err)
			}
		}
	}
	addKeys(f)
}

// root returns the whole command line, with a as its App.
func (p Program) root(a *App, environ map[string]string) *cobra.Command {
	root := Group(p.Name, p.Description, "", p.Commands...)
	if p.Default != nil {
		root.RunE = p.Default.RunE
		root.Flags().AddFlagSet(p.Default.Flags())
	}
	root.SetOut(a.Out)
	root.SetErr(a.Err)
	root.SetHelpCommand(&cobra.Command{Use: "no-help", Hidden: true}) // Execute handles help
	root.CompletionOptions.DisableDefaultCmd = true                   // ours also completes values
	root.SetHelpFunc(printHelp)
	root.SetFlagErrorFunc(wrongFlag)
	root.SetContext(context.WithValue(context.Background(), appKey{}, a))
	a.flags.add(root, environ)
	return root
}

// required reports whether a command does not run without the flag.
func required(f *pflag.Flag) bool { return len(f.Annotations[cobra.BashCompOneRequiredFlag]) > 0 }
