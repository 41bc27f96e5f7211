package cli

import (
	"fmt"
	"go/doc/comment"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const (
	// helpWidth is that of a terminal which nobody has made wider, in columns.
	helpWidth = 80
	// configuration is the group of the flags that are keys.
	configuration = "Configuration:"
)

// help prints what --help shows of a command.
func (l *line) help(c *cobra.Command, _ []string) {
	if l.beside = unexpected(c, c.Flags().Args()); l.beside != nil && c.HasSubCommands() {
		return
	}
	l.beside = nil
	w := c.OutOrStdout()
	fmt.Fprintf(w, "Usage: %s\n\n%s", l.usage(c), wrapped(c.Short))
	if c.Long != "" {
		fmt.Fprintf(w, "\n%s", wrapped(c.Long))
	}
	if args := l.args[c]; len(args) > 0 {
		rows := [][2]string{}
		for _, v := range args {
			rows = append(rows, [2]string{v.argument(), v.tag.Get("help")})
		}
		table(w, "Arguments:", rows)
	}
	rows := [][2]string{}
	for _, child := range c.Commands() {
		if !child.Hidden {
			rows = append(rows, [2]string{child.Name(), child.Short})
		}
	}
	table(w, "Commands:", rows)
	l.flags(w, c)
	if c.HasSubCommands() {
		fmt.Fprintf(w, "\nRun \"%s <command> --help\" for more information on a command.\n", c.CommandPath())
	}
}

// usage is how the command is written.
func (l *line) usage(c *cobra.Command) string {
	words := []string{c.CommandPath()}
	for _, v := range l.args[c] {
		words = append(words, v.argument())
	}
	if c.HasSubCommands() {
		word := "<command>"
		if l.run[c] != nil {
			word = "[<command>]"
		}
		words = append(words, word)
	}
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if v, is := f.Value.(*value); is && v.required() {
			words = append(words, "--"+f.Name+" "+v.Type())
		}
	})
	return strings.Join(append(words, "[flags]"), " ")
}

// flags prints those of the command, those of all commands, and the keys.
func (l *line) flags(w io.Writer, c *cobra.Command) {
	own, common, keys := newFlags(), newFlags(), newFlags()
	everywhere := l.root.PersistentFlags()
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if everywhere.Lookup(f.Name) == nil {
			own.AddFlag(f)
		}
	})
	everywhere.VisitAll(func(f *pflag.Flag) {
		if _, is := f.Value.(*keyFlag); is {
			keys.AddFlag(f)
		} else {
			common.AddFlag(f)
		}
	})
	title := "Flags:"
	if own.HasFlags() {
		fmt.Fprintf(w, "\n%s\n%s", title, own.FlagUsagesWrapped(helpWidth))
		title = "Flags of every command:"
	}
	fmt.Fprintf(w, "\n%s\n%s", title, common.FlagUsagesWrapped(helpWidth))
	fmt.Fprintf(w, "\n%s\n%s", configuration, keys.FlagUsagesWrapped(helpWidth))
}

func newFlags() *pflag.FlagSet {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.SortFlags = false
	return flags
}

// table prints rows of two columns, if there are any.
func table(w io.Writer, title string, rows [][2]string) {
	if len(rows) == 0 {
		return
	}
	width := 0
	for _, row := range rows {
		width = max(width, len(row[0]))
	}
	fmt.Fprintf(w, "\n%s\n", title)
	for _, row := range rows {
		fmt.Fprintf(w, "  %-*s  %s\n", width, row[0], row[1])
	}
}

// wrapped is a text in paragraphs, with its examples indented, as Go's own documentation is printed.
func wrapped(text string) string {
	var parser comment.Parser
	printer := comment.Printer{TextWidth: helpWidth, TextCodePrefix: "  "}
	return string(printer.Text(parser.Parse(text)))
}
