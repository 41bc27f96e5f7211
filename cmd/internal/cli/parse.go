package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// errVersion reports that version requested.
var errVersion = errors.New("version requested")

// parse reads a command line into the flags and arguments of the commands. It returns the command that was reached,
// also with an error.
func parse(root *cobra.Command, args []string) (*cobra.Command, error) {
	root.SetArgs(append([]string{}, args...)) // nil would be those of the process
	c, err := root.ExecuteC()
	a := appOf(root)
	switch swallowed := swallowed(c); {
	case swallowed != nil:
		return c, swallowed
	case err != nil:
		return c, err
	case a.beside != nil:
		return c, a.beside
	case a.command != nil && a.run == nil:
		return c, fmt.Errorf("a command is missing, one of: %s", strings.Join(commandNames(c), ", "))
	}
	return c, nil
}

// swallowed reports a flag without a value that took the next flag for one, as --a --b=c does where a is no switch.
func swallowed(c *cobra.Command) (err error) {
	c.Flags().Visit(func(f *pflag.Flag) {
		next, is := strings.CutPrefix(f.Value.String(), "--")
		next, _, _ = strings.Cut(next, "=")
		if is && c.Flags().Lookup(next) != nil {
			err = fmt.Errorf("--%s: found no value, and the flag --%s behind it; needed: --%s=%s", f.Name, next, f.Name,
				placeholder(f))
		}
	})
	return err
}

// unexpected is the mistake of arguments that are too many, or of a command that there is not.
func unexpected(c *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return nil
	case c.HasSubCommands():
		return fmt.Errorf("unknown command %q%s", args[0], meant(args[0], commandNames(c), ""))
	}
	return fmt.Errorf("unexpected argument %q", args[0])
}

func commandNames(c *cobra.Command) (names []string) {
	for _, child := range c.Commands() {
		if !child.Hidden {
			names = append(names, child.Name())
		}
	}
	return names
}

// allowed are the values of pflag's own types.
var allowed = map[string]string{"bool": "true, false", "int": "a whole number", "intSlice": "a whole number",
	"duration": "a duration such as 500ms, 30s or 5m"}

// wrongFlag says what is wrong with a flag, in the way in which the configuration's mistakes are told.
func wrongFlag(c *cobra.Command, err error) error {
	if unknown, is := errors.AsType[*pflag.NotExistError](err); is {
		if unknown.GetSpecifiedShortnames() != "" {
			return fmt.Errorf("unknown flag -%s", unknown.GetSpecifiedName())
		}
		var names []string
		c.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		name := unknown.GetSpecifiedName()
		return fmt.Errorf("unknown flag --%s%s", name, meant(name, names, "--"))
	}
	if lacking, is := errors.AsType[*pflag.ValueRequiredError](err); is {
		f := lacking.GetFlag()
		return fmt.Errorf("--%s: found no value; needed: --%s=%s", f.Name, f.Name, placeholder(f))
	}
	if invalid, is := errors.AsType[*pflag.InvalidValueError](err); is {
		f := invalid.GetFlag()
		if allowed := allowed[f.Value.Type()]; allowed != "" {
			return fmt.Errorf("--%s: found %q; allowed: %s", f.Name, invalid.GetValue(), allowed)
		}
		return fmt.Errorf("--%s: %w", f.Name, invalid.Unwrap())
	}
	return err
}

// meant asks whether one of the names was meant: those that begin like the one that was found, or differ in two letters
// at most.
func meant(found string, names []string, prefix string) string {
	list := cobra.Command{SuggestionsMinimumDistance: 2}
	for _, name := range names {
		list.AddCommand(&cobra.Command{Use: name, Run: func(*cobra.Command, []string) {}})
	}
	like := list.SuggestionsFor(found)
	slices.Sort(like)
	for i, name := range like {
		like[i] = fmt.Sprintf("%q", prefix+name)
	}
	switch len(like) {
	case 0:
		return ""
	case 1:
		return ", did you mean " + like[0] + "?"
	}
	return ", did you mean one of " + strings.Join(like, ", ") + "?"
}
