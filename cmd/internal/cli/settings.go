package cli

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/schemas"
)

// shownFlags are the keys whose flags --help lists. The others have flags, too; listing all would hide these.
var shownFlags = []string{
	"postgres.url", "postgres.replication_url", "postgres.slot", "postgres.publication", "postgres.schema",
	"outbox.table", "message.topic", "kafka.brokers", "http.listen", "log.level", "log.format",
}

// keyFlags is one flag for each configuration key. The flags are a struct made from [config.Keys], which is the form
// in which kong takes flags; nil means not given.
type keyFlags struct {
	keys   []config.Key
	target any // *struct{ Key0, Key1, … *string }
}

func newKeyFlags() keyFlags {
	keys := slices.DeleteFunc(config.Keys(), func(k config.Key) bool { return !k.Available })
	fields := make([]reflect.StructField, len(keys))
	for i, k := range keys {
		tag := fmt.Sprintf(`name:%q help:%q placeholder:%q group:"Configuration:"`, k.Flag, k.Help, "VALUE")
		if !slices.Contains(shownFlags, k.Name) {
			tag += ` hidden:""`
		}
		fields[i] = reflect.StructField{Name: fmt.Sprintf("Key%d", i), Type: reflect.TypeFor[*string](),
			Tag: reflect.StructTag(tag)}
	}
	return keyFlags{keys, reflect.New(reflect.StructOf(fields)).Interface()}
}

// settings are the flags that were given.
func (f keyFlags) settings() []config.Setting {
	var given []config.Setting
	values := reflect.ValueOf(f.target).Elem()
	for i, k := range f.keys {
		if v := values.Field(i).Interface().(*string); v != nil {
			given = append(given, config.Setting{Flag: "--" + k.Flag, Key: k.Name, Value: *v})
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

// Load reads the configuration from file, environment and flags, before anything is connected to or created. What is
// wrong with the command's own flags ([App.Wrong]) is told together with what is wrong with it.
func (a *App) Load(required []string) (config.Config, error) {
	in := config.Input{Environ: a.Environ, OwnEnv: a.ownEnv, Flags: a.keys.settings(), Required: required}
	if slices.Contains(required, "postgres.url") {
		in.Connects = connects
	}
	if slices.Contains(required, "kafka.brokers") { // it makes messages, or says whether they can be made
		in.Compiles = func(directory string) (err error) {
			if a.schemas, err = schemas.Load(directory); err != nil {
				return errors.New(strings.ReplaceAll(err.Error(), "\n", "; ")) // a problem is one line
			}
			return nil
		}
	}
	var problems config.Problems
	for _, pair := range a.flags.Set {
		key, value, found := strings.Cut(pair, "=")
		if !found {
			problems = append(problems, config.Problem{Key: key, Where: "--set", What: "found no value",
				Allowed: "--set key=value"})
			continue
		}
		in.Flags = append(in.Flags, config.Setting{Flag: "--set", Key: key, Value: value})
	}
	if a.flags.Config != "" {
		text, err := os.ReadFile(a.flags.Config)
		if err != nil {
			problems = append(problems, config.Problem{Key: "--config", What: err.Error(), Allowed: "the path of a YAML file"})
			in.Required = NeedsNothing // the file may hold them
		}
		in.File, in.Text = a.flags.Config, text
	}
	cfg, err := config.Load(in)
	if more, ok := err.(config.Problems); ok {
		problems = append(problems, more...)
	}
	if len(problems) > 0 {
		return config.Config{}, append(slices.Clone(a.mistakes), problems...)
	}
	return cfg, wrongUsage(a.mistakes)
}

// Schemas are those that Load has compiled; nil if there are none, or the command needs none.
func (a *App) Schemas() *schemas.Set { return a.schemas }

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
