package cli

import (
	"fmt"
	"reflect"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cdc-relay/cdc-relay/config"
)

// runner is a command. It is called through this interface, and not by its name: a program that calls methods by names
// which only the run knows makes the linker keep every exported method of every type in it.
type runner interface{ Run(a *App) error }

// helper is a command with more to say than its one line.
type helper interface{ Help() string }

// line is the command line as cobra has it, made from the fields of a [Program]'s Commands and their tags:
//
//	cmd:""          a command, whose own fields are its flags, arguments and subcommands
//	default:"…"     of a flag: its value unless another is given. Of a command: it is run when none is named
//	arg:""          an argument; optional:"" if it can be left out; a list takes all the rest
//	name:"x"        instead of the field's name: DryRun is dry-run. A field with an abbreviation in it needs one
//	short:"x"       -x
//	help:"…"        one line
//	placeholder:"X" what stands for the value in --help
//	env:"X"         the environment variable that stands for the flag
//	enum:"a,b"      the only values; values:"a,b" are completed and not checked
//	empty:"no"      an empty text is a mistake, as where a script's variable is not set
//	sep:"none"      commas do not divide the values of a list
//	type:"path"     a file's path, which begins here or with ~/
//	required:""     the command does not run without it
//	xor:"x"         not together with another flag that has the same
//	embed:""        (or an embedded struct) the struct's fields stand here; before their variables
type line struct {
	root    *cobra.Command
	environ map[string]string
	values  []*value                    // of all commands
	args    map[*cobra.Command][]*value // in their order
	run     map[*cobra.Command]runner
	keys    []*keyFlag

	version *bool
	chosen  *cobra.Command // what the command line comes to; nil: it was answered with help
	beside  error          // of what stood beside --help
}

// Commands and flags stand in the order in which the program lists them.
func init() { cobra.EnableCommandSorting = false }

// build makes the command line. It panics on fields that it does not understand: those are mistakes of the program.
func (p Program) build(s Streams) *line {
	l := &line{environ: map[string]string{}, args: map[*cobra.Command][]*value{}, run: map[*cobra.Command]runner{},
		version: &p.Flags.Version}
	for _, pair := range s.Environ {
		name, text, _ := strings.Cut(pair, "=")
		l.environ[name] = text
	}
	l.root = l.command(p.Name, p.Description)
	l.root.SetOut(s.Out)
	l.root.SetErr(s.Err)
	l.root.SetHelpCommand(&cobra.Command{Use: "no-help", Hidden: true}) // Execute knows help
	l.root.CompletionOptions.DisableDefaultCmd = true                   // there is one with all values
	l.root.SetHelpFunc(l.help)
	common := l.root.PersistentFlags()
	common.SortFlags = false
	l.value(l.root, common, &value{field: reflect.ValueOf(new(bool)).Elem(), name: "help",
		tag: `help:"Show context-sensitive help." short:"h"`})
	l.fields(l.root, common, reflect.ValueOf(p.Commands).Elem())
	for _, k := range config.Keys() {
		if k.Available {
			f := &keyFlag{key: k}
			l.keys = append(l.keys, f)
			common.AddFlag(f.flag())
		}
	}
	return l
}

func (l *line) command(name, help string) *cobra.Command {
	c := &cobra.Command{Use: name, Short: help, SilenceErrors: true, SilenceUsage: true,
		DisableFlagsInUseLine: true, Args: l.check,
		RunE: func(c *cobra.Command, _ []string) error { l.chosen = c; return nil }}
	c.Flags().SortFlags = false
	return c
}

// fields makes flags, arguments and subcommands of a struct's fields.
func (l *line) fields(c *cobra.Command, flags *pflag.FlagSet, from reflect.Value) {
	for i := range from.NumField() {
		field, tag := from.Type().Field(i), from.Type().Field(i).Tag
		_, embed := tag.Lookup("embed")
		_, command := tag.Lookup("cmd")
		name := tag.Get("name")
		if name == "" {
			name = dashed(field.Name)
		}
		switch {
		case command:
			l.subcommand(c, name, tag, from.Field(i))
		case embed || field.Anonymous:
			l.fields(c, flags, from.Field(i))
		default:
			l.value(c, flags, &value{field: from.Field(i), tag: tag, name: name})
		}
	}
}

func (l *line) subcommand(parent *cobra.Command, name string, tag reflect.StructTag, from reflect.Value) {
	c := l.command(name, tag.Get("help"))
	target := from.Addr().Interface()
	if h, is := target.(helper); is {
		c.Long = h.Help()
	}
	if r, is := target.(runner); is {
		l.run[c] = r
	}
	parent.AddCommand(c)
	l.fields(c, c.Flags(), from)
	if tag.Get("default") != "" {
		l.run[parent], l.args[parent] = l.run[c], l.args[c]
		parent.Flags().AddFlagSet(c.Flags())
	}
	if l.run[c] == nil && !c.HasSubCommands() {
		panic(fmt.Sprintf("the command line is built wrongly: %s has no method Run(*cli.App) error", name))
	}
}

// value is one flag or argument.
func (l *line) value(c *cobra.Command, flags *pflag.FlagSet, v *value) {
	if !readable(v.element()) {
		panic(fmt.Sprintf("the command line is built wrongly: %s is %s, which cannot be read", v.name, v.field.Type()))
	}
	v.field.SetZero()
	v.env = v.tag.Get("env")
	text, found := l.environ[v.env]
	if err := v.start(text, found && v.env != ""); err != nil {
		v.wrong = fmt.Errorf("--%s (%s): %w", v.name, v.env, err)
	}
	l.values = append(l.values, v)
	if v.positional() {
		l.args[c] = append(l.args[c], v)
		return
	}
	flag := flags.VarPF(v, v.name, v.tag.Get("short"), v.usage())
	if v.isBool() {
		flag.NoOptDefVal = "true"
	}
}

// dashed is a field's name as that of a flag.
func dashed(name string) string {
	var b strings.Builder
	small := false
	for _, r := range name {
		if unicode.IsUpper(r) && small {
			b.WriteByte('-')
		}
		small = unicode.IsLower(r)
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// own are the environment variables of flags that are no configuration keys.
func (l *line) own() (names []string) {
	for _, v := range l.values {
		if v.env != "" {
			names = append(names, v.env)
		}
	}
	return names
}
