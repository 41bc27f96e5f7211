package cli

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// PrintCompletion prints the script that completes commands, subcommands and flags in a shell: bash, zsh or fish. It
// lists what the command line knows now, so that it never starts the program to complete.
func (a *App) PrintCompletion(shell string) {
	w, places := a.Out, placesOf("", a.command.Root())
	switch shell {
	case "fish":
		printFish(w, places)
		return
	case "zsh":
		fmt.Fprint(w, "#compdef cdc-relay\nautoload -U +X bashcompinit && bashcompinit\n")
	}
	printBash(w, places)
}

// place is one command, a subcommand such as /dlq/list, or "" for what comes before any.
type place struct {
	path  string
	words []offer // that can come next: subcommands, or the values of an argument
	flags []offer

	values map[string]string // that a flag can have, by the flag
}

type offer struct{ text, help string }

// placesOf are the place of the command and those below it.
func placesOf(path string, c *cobra.Command) []place {
	p := place{path: path, values: map[string]string{}}
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if values := strings.Join(options(f), " "); values != "" {
			p.values["--"+f.Name] = values
			if f.Shorthand != "" {
				p.values["-"+f.Shorthand] = values
			}
		}
		p.flags = append(p.flags, offer{"--" + f.Name, f.Usage})
	})
	for _, word := range c.ValidArgs {
		p.words = append(p.words, offer{word, c.Short})
	}
	var below []place
	for _, child := range c.Commands() {
		if child.Hidden {
			continue
		}
		p.words = append(p.words, offer{child.Name(), child.Short})
		below = append(below, placesOf(path+"/"+child.Name(), child)...)
	}
	return append([]place{p}, below...)
}

func texts(words []offer) string {
	var list []string
	for _, w := range words {
		list = append(list, w.text)
	}
	return strings.Join(list, " ")
}

// paths are the commands and subcommands, with the separator between them.
func paths(places []place, separator string) string {
	var list []string
	for _, p := range places[1:] {
		list = append(list, p.path)
	}
	return strings.Join(list, separator)
}

func printBash(w io.Writer, places []place) {
	fmt.Fprintf(w, `_cdc_relay() {
  local word="${COMP_WORDS[COMP_CWORD]}" place="" words="" flags="%s" w i
  for ((i = 1; i < COMP_CWORD; i++)); do w="${COMP_WORDS[i]}"; case "$place/$w" in %s) place="$place/$w";; esac; done
  case "$place" in
`, texts(places[0].flags), paths(places, "|"))
	for _, p := range places {
		if p.path == "" {
			fmt.Fprintf(w, "    \"\") words=\"%s\";;\n", texts(p.words))
		} else {
			fmt.Fprintf(w, "    %s) words=\"%s\" flags=\"$flags %s\";;\n", p.path, texts(p.words), texts(p.flags))
		}
	}
	fmt.Fprint(w, `  esac
  case "$place ${COMP_WORDS[COMP_CWORD-1]}" in
`)
	for _, p := range places {
		at := `"` + p.path + ` "`
		if p.path == "" { // these can stand anywhere
			at = `*" "`
		}
		for _, flag := range slices.Sorted(maps.Keys(p.values)) {
			fmt.Fprintf(w, "    %s%s) COMPREPLY=($(compgen -W \"%s\" -- \"$word\")); return;;\n", at, flag, p.values[flag])
		}
	}
	fmt.Fprint(w, `  esac
  if [[ "$word" == -* ]]; then COMPREPLY=($(compgen -W "$flags" -- "$word"))
  elif [[ -n "$words" ]]; then COMPREPLY=($(compgen -W "$words" -- "$word"))
  else COMPREPLY=($(compgen -f -- "$word")); fi
}
complete -F _cdc_relay cdc-relay
`)
}

func printFish(w io.Writer, places []place) {
	fmt.Fprintf(w, `function __cdc_relay_place
  set -l place ""
  for w in (commandline -opc)[2..-1]
    switch "$place/$w"
      case %s
        set place "$place/$w"
    end
  end
  echo "$place"
end
`, paths(places, " "))
	for _, p := range places {
		at := fmt.Sprintf(`test (__cdc_relay_place) = "%s"`, p.path)
		for _, next := range p.words {
			fmt.Fprintf(w, "complete -c cdc-relay -n '%s' -f -a %s -d %s\n", at, next.text, fishText(next.help))
		}
		condition := fmt.Sprintf("-n '%s' ", at)
		if p.path == "" { // these can stand anywhere
			condition = ""
		}
		for _, flag := range p.flags {
			fmt.Fprintf(w, "complete -c cdc-relay %s-l %s -d %s%s\n", condition, strings.TrimPrefix(flag.text, "--"),
				fishText(flag.help), fishValues(p.values[flag.text]))
		}
	}
}

// fishValues formats a flag's values for fish.
func fishValues(values string) string {
	if values == "" {
		return ""
	}
	return " -x -a " + fishText(values)
}

// fishText quotes a text for fish.
func fishText(text string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(text) + "'"
}
