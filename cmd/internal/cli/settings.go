package cli

import (
	"errors"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/pflag"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/message/schemas"
)

// shownFlags are the keys whose flags --help lists. The others have flags, too; listing all would hide these.
var shownFlags = []string{
	"postgres.url", "postgres.replication_url", "postgres.slot", "postgres.publication", "postgres.schema",
	"outbox.table", "message.topic", "kafka.brokers", "http.listen", "log.level", "log.format",
}

// addKeys adds a flag for each configuration key. The configuration has the defaults.
func addKeys(f *pflag.FlagSet) {
	for _, k := range config.Keys() {
		if k.Available {
			f.String(k.Flag, "", k.Help)
			f.Lookup(k.Flag).Hidden = !slices.Contains(shownFlags, k.Name)
			_ = f.SetAnnotation(k.Flag, shownAs, []string{keyValue})
		}
	}
}

// settings returns the keys whose flags were given.
func settings(f *pflag.FlagSet) (given []config.Setting) {
	for _, k := range config.Keys() {
		if k.Available && f.Changed(k.Flag) {
			given = append(given, config.Setting{Flag: "--" + k.Flag, Key: k.Name, Value: f.Lookup(k.Flag).Value.String()})
		}
	}
	return given
}

// The keys that commands cannot do without.
var (
	NeedsNothing  = []string{}
	NeedsPostgres = []string{"postgres.url"}
	NeedsBoth     = []string{"postgres.url", "kafka.brokers"}
)

// Loaded is a configuration, and what was learned when it was read.
type Loaded struct {
	config.Config
	Schemas *schemas.Set      // of message.schemas; nil without, or if the command needs none
	Origins map[string]string // where each key that is set has its value from: file:line, variable or flag
}

// Origin is where the key has its value from; "" when it is the default.
func (l *Loaded) Origin(key string) string { return l.Origins[key] }

// Load reads the configuration from file, environment and flags, before anything is connected to or created. What is
// wrong with the command's own flags ([App.Wrong]) is told together with what is wrong with it.
func (a *App) Load(required []string) (config.Config, error) {
	var problems config.Problems
	var text []byte
	if a.flags.config != "" {
		var err error
		if text, err = os.ReadFile(a.flags.config); err != nil {
			problems = append(problems, config.Problem{Key: "--config", What: err.Error(), Allowed: "the path of a YAML file"})
			required = NeedsNothing // the file may hold them
		}
	}
	loaded, err := a.load(required, a.flags.config, text)
	a.loaded = loaded
	if more, is := errors.AsType[config.Problems](err); is {
		problems = append(problems, more...)
	}
	if len(problems) > 0 {
		return config.Config{}, append(slices.Clone(a.mistakes), problems...)
	}
	return loaded.Config, wrongUsage(a.mistakes)
}

// LoadFile is Load for a relay that is described by this file, beside others: it may not have the foreign sections.
func (a *App) LoadFile(file string, text []byte, foreign ...string) (Loaded, error) {
	return a.load(NeedsBoth, file, text, foreign...)
}

// ConfigFile is the file of --config, "" without one.
func (a *App) ConfigFile() string { return a.flags.config }

// load reads a configuration; without a file that is the environment and the flags.
func (a *App) load(required []string, file string, text []byte, foreign ...string) (Loaded, error) {
	l := Loaded{Origins: map[string]string{}}
	in := config.Input{File: file, Text: text, Foreign: foreign, Environ: a.Environ,
		OwnEnv: slices.Collect(maps.Values(ownEnv)), Flags: settings(a.command.Flags()), Required: required,
		Origins: l.Origins}
	if slices.Contains(required, "postgres.url") {
		in.Connects = connects
	}
	if slices.Contains(required, "kafka.brokers") { // it makes messages, or says whether they can be made
		in.Compiles = func(directory string) (err error) {
			if l.Schemas, err = schemas.Load(directory); err != nil {
				return errors.New(strings.ReplaceAll(err.Error(), "\n", "; ")) // a problem is one line
			}
			return nil
		}
	}
	var problems config.Problems
	for _, pair := range a.flags.set {
		key, value, found := strings.Cut(pair, "=")
		if !found {
			problems = append(problems, config.Problem{Key: key, Where: "--set", What: "found no value",
				Allowed: "--set key=value"})
			continue
		}
		in.Flags = append(in.Flags, config.Setting{Flag: "--set", Key: key, Value: value})
	}
	cfg, err := config.Load(in)
	if more, is := errors.AsType[config.Problems](err); is {
		problems = append(problems, more...)
	}
	if len(problems) > 0 {
		return l, problems
	}
	l.Config = cfg
	return l, nil
}

// Schemas are those that Load has compiled; nil if there are none, or the command needs none.
func (a *App) Schemas() *schemas.Set { return a.loaded.Schemas }

// Origin is where the key has its value from, as Load has read it: file:line, variable or flag; "" when it is the
// default.
func (a *App) Origin(key string) string { return a.loaded.Origin(key) }

// connects says why the driver could not even try to connect: a port that is none, an option that it does not know, a
// certificate that is not there. It reads files and environment variables as libpq does. What it says begins with the
// URL, which who asks shows anyway.
func connects(url string) error {
	_, err := pgxpool.ParseConfig(url)
	if _, ok := errors.AsType[*pgconn.ParseConfigError](err); !ok {
		return err
	}
	text := err.Error()
	if _, what, found := strings.Cut(text, "`: "); found {
		text = what
	}
	return errors.New(text)
}
