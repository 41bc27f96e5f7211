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
	// helpWidth is that of a terminal which no one has made wider, in columns.
	helpWidth = 80
	// configuration is the group of the flags that are keys.
	configuration = "Configuration:"
)

// printHelp prints what --help shows of a command.
func printHelp(c *cobra.Command, _ []string) {
	a := appOf(c)
	if a.beside = unexpected(c, c.Flags().Args()); a.beside != nil && c.HasSubCommands() {
		return
	}
	a.beside = nil
	w := c.OutOrStdout()
	fmt.Fprintf(w, "Usage: %s\n\n%s", usage(c), wrapped(c.Short))
	if c.Long != "" {
		fmt.Fprintf(w, "\n%s", wrapped(c.Long))
	}
	if shown, help, found := strings.Cut(c.Annotations[argumentsOf], "\t"); found {
		table(w, "Arguments:", [][2]string{{shown, help}})
	}
	rows := [][2]string{}
	for _, child := range c.Commands() {
		if !child.Hidden {
			rows = append(rows, [2]string{child.Name(), child.Short})
		}
	}
	table(w, "Commands:", rows)
	printFlags(w, c)
	if c.HasSubCommands() {
		fmt.Fprintf(w, "\nRun \"%s <command> --help\" for more information on a command.\n", c.CommandPath())
	}
}

// usage is how the command is written.
func usage(c *cobra.Command) string {
	words := []string{c.UseLine()}
	if c.HasSubCommands() {
		word := "<command>"
		if c.LocalNonPersistentFlags().HasFlags() {
			word = "[<command>]" // there is a default
		}
		words = append(words, word)
	}
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if required(f) {
			words = append(words, "--"+f.Name+" "+placeholder(f))
		}
	})
	return strings.Join(append(words, "[flags]"), " ")
}

// printFlags prints those of the command, those of all commands, and the keys.
func printFlags(w io.Writer, c *cobra.Command) {
	own, common, keys := newFlags(), newFlags(), newFlags()
	everywhere := c.Root().PersistentFlags()
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if everywhere.Lookup(f.Name) == nil {
			own.AddFlag(forHelp(f))
		}
	})
	everywhere.VisitAll(func(f *pflag.Flag) {
		if placeholder(f) == keyValue {
			keys.AddFlag(forHelp(f))
		} else {
			common.AddFlag(forHelp(f))
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
