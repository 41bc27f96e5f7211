package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// errVersion says that the version was asked for.
var errVersion = errors.New("the version was asked for")

// parse reads a command line into the fields of the commands. It gives the command that was reached, also with an
// error.
func (l *line) parse(args []string) (*cobra.Command, error) {
	l.root.SetArgs(append([]string{}, args...)) // nil would be those of the process
	l.root.SetFlagErrorFunc(wrongFlag)
	c, err := l.root.ExecuteC()
	if err == nil {
		err = l.beside
	}
	return c, err
}

// check sees that what was given for a command makes sense together, and fills its arguments. It implements
// cobra.PositionalArgs.
func (l *line) check(c *cobra.Command, args []string) error {
	if *l.version {
		return errVersion
	}
	for _, v := range l.args[c] {
		mine := args[:min(len(args), 1)]
		if v.isList() {
			mine = args
		}
		if len(mine) == 0 && !v.optional() {
			return fmt.Errorf("an argument is missing: %s", v.argument())
		}
		for _, text := range mine {
			if err := v.Set(text); err != nil {
				return fmt.Errorf("<%s>: %w", v.name, err)
			}
		}
		args = args[len(mine):]
	}
	if err := unexpected(c, args); err != nil {
		return err
	}
	if l.run[c] == nil {
		return fmt.Errorf("a command is missing, one of: %s", strings.Join(commandNames(c), ", "))
	}
	return together(c)
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

// together looks for flags that are wrong in the environment, for those that exclude each other, and for those that are
// missing.
func together(c *cobra.Command) (err error) {
	groups := map[string]string{} // the flag that was found of each group
	var missing []string
	c.Flags().VisitAll(func(f *pflag.Flag) {
		v, is := f.Value.(*value)
		if !is {
			return
		}
		if err == nil {
			err = v.wrong
		}
		if v.required() && !v.set {
			missing = append(missing, "--"+f.Name+"="+v.Type())
		}
		group := v.tag.Get("xor")
		if group == "" || !v.set {
			return
		}
		if other := groups[group]; other != "" && err == nil {
			err = fmt.Errorf("--%s and --%s can't be used together", other, f.Name)
		}
		groups[group] = f.Name
	})
	if err == nil && len(missing) > 0 {
		err = fmt.Errorf("missing flags: %s", strings.Join(missing, ", "))
	}
	return err
}

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
		return fmt.Errorf("--%s: found no value; needed: --%s=%s", f.Name, f.Name, f.Value.Type())
	}
	if invalid, is := errors.AsType[*pflag.InvalidValueError](err); is {
		return fmt.Errorf("--%s: %w", invalid.GetFlag().Name, invalid.Unwrap())
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
