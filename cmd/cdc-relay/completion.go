package main

import (
	"fmt"
	"strings"

	"github.com/alecthomas/kong"
)

type completionCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

func (completionCommand) Help() string {
	return "Completes commands and flags.\n\nExamples:\n\n  source <(cdc-relay completion bash)\n\n  cdc-relay completion fish > ~/.config/fish/completions/cdc-relay.fish"
}

// Run prints the script. It lists what the command line knows now, so that it never starts the program to complete.
func (c completionCommand) Run(a *app, k *kong.Kong) error {
	commands, flags := words(k.Model.Node)
	switch c.Shell {
	case "fish":
		for _, n := range k.Model.Children {
			fmt.Fprintf(a.out, "complete -c cdc-relay -n __fish_use_subcommand -f -a %s -d %q\n", n.Name, n.Help)
			for _, f := range n.Flags {
				fmt.Fprintf(a.out, "complete -c cdc-relay -n '__fish_seen_subcommand_from %s' -l %s -d %q\n", n.Name, f.Name, f.Help)
			}
		}
		for _, f := range k.Model.Flags {
			fmt.Fprintf(a.out, "complete -c cdc-relay -l %s -d %q\n", f.Name, f.Help)
		}
		return nil
	case "zsh":
		fmt.Fprint(a.out, "#compdef cdc-relay\nautoload -U +X bashcompinit && bashcompinit\n")
	}
	fmt.Fprintf(a.out, `_cdc_relay() {
  local word="${COMP_WORDS[COMP_CWORD]}" command="" w
  for w in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do case " %[1]s " in *" $w "*) command="$w"; break;; esac; done
  local flags="%[2]s"
  case "$command" in
%[3]s  esac
  if [[ "$word" == -* ]]; then COMPREPLY=($(compgen -W "$flags" -- "$word"))
  elif [[ -z "$command" ]]; then COMPREPLY=($(compgen -W "%[1]s" -- "$word"))
  else COMPREPLY=($(compgen -f -- "$word")); fi
}
complete -F _cdc_relay cdc-relay
`, strings.Join(commands, " "), strings.Join(flags, " "), flagsByCommand(k.Model.Node))
	return nil
}

func words(n *kong.Node) (commands, flags []string) {
	for _, child := range n.Children {
		commands = append(commands, child.Name)
	}
	for _, f := range n.Flags {
		flags = append(flags, "--"+f.Name)
	}
	return commands, flags
}

func flagsByCommand(n *kong.Node) string {
	var b strings.Builder
	for _, child := range n.Children {
		if _, flags := words(child); len(flags) > 0 {
			fmt.Fprintf(&b, "    %s) flags=\"$flags %s\";;\n", child.Name, strings.Join(flags, " "))
		}
	}
	return b.String()
}
