// Package configure is the command config: it shows the configuration as commands see it, describes all of it for
// editors, and writes a first one from what a database has. Only the last connects, and it changes nothing there.
//
// The command is tested as it is run (cmd/cdc-relay), the schema and the recognition of tables are tested here.
package configure

import (
	"cmp"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
)

// Command returns config and its subcommands.
func Command() *cobra.Command {
	return cli.Group("config", "Write a first file; show what is set, and where; print the JSON Schema.",
		`Examples:

  cdc-relay config show --config relay.yaml

  cdc-relay config schema > cdc-relay.schema.json

  cdc-relay config init --postgres-url postgres://relay@db/shop --kafka-brokers kafka:9092`,
		showCommand(),
		schemaCommand(),
		new(initCommand).command(),
	)
}

func showCommand() *cobra.Command {
	var all bool
	cmd := cli.Command("show", "Show what is set, and where.",
		`Reads file, environment and flags as every command does, and connects to nothing. Passwords in URLs are masked.

Exit code 2 if something is wrong with the configuration. What a command needs and is not set is not looked for:
"cdc-relay check" does that.

Examples:

  cdc-relay config show --config relay.yaml

  cdc-relay config show --all --json`,
		func(a *cli.App) error { return showConfiguration(a, all) })
	cmd.Flags().BoolVar(&all, "all", false, "Show defaults, too.")
	return cmd
}

// shown is a key.
type shown struct {
	Key     string `json:"key"`
	Value   string `json:"value"` // as it would be written, secrets masked
	From    string `json:"from"`  // file:line, variable or flag; default
	Default bool   `json:"default"`
	Help    string `json:"help"`
}

// namedBy is where the keys have their values from that the database decides; this command asks none.
var namedBy = map[string]string{
	"postgres.slot": "default where this database has the slot or a record of it, else cdc_relay_<database>",
	"service":       "default, or cdc-relay-<database> with the slot cdc_relay_<database>",
}

// showConfiguration shows the configuration.
func showConfiguration(a *cli.App, all bool) error {
	cfg, err := a.Load(cli.NeedsNothing)
	if err != nil {
		return err
	}
	keys := []shown{}
	for _, k := range cfg.Shown() {
		from := a.Origin(k.Key)
		if from == "" {
			if !all {
				continue
			}
			from = cmp.Or(namedBy[k.Key], "default")
		}
		keys = append(keys, shown{k.Key, k.Value, from, k.IsDefault, k.Help})
	}
	if a.JSON {
		return a.PrintJSON(keys)
	}
	if len(keys) == 0 {
		cli.Fprintln(a.Out, "nothing is set; --all shows the defaults")
		return nil
	}
	w := tabwriter.NewWriter(a.Out, 0, 0, 2, ' ', 0)
	cli.Fprintln(w, cli.Own("KEY\tVALUE\tFROM"))
	for _, k := range keys {
		cli.Fprintf(w, "%s\t%s\t%s\n", k.Key, cli.Plain(k.Value), k.From)
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("write the output: %w", err)
	}
	return nil
}

func schemaCommand() *cobra.Command {
	return cli.Command("schema", "Print a JSON Schema of the file, for editors.",
		`Prints a JSON Schema (draft 2020-12) of the configuration file. With it an editor completes keys, shows what
they mean, and marks what is wrong. Editors with the YAML language server read the file's first line:

  # yaml-language-server: $schema=cdc-relay.schema.json

Example:

  cdc-relay config schema > cdc-relay.schema.json`, printSchema)
}

// printSchema prints the schema.
func printSchema(a *cli.App) error { return a.PrintJSON(schema()) }
