package config

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// Input is everything that the configuration is made of.
type Input struct {
	File    string   // the file's name for messages; empty: no file
	Text    []byte   // the file's content
	Foreign []string // sections that the file may not have: it describes one relay of several
	Environ []string // NAME=value, as os.Environ gives it
	// OwnEnv are the CDC_RELAY_ variables that are not keys but belong to the command line, such as CDC_RELAY_CONFIG.
	OwnEnv []string
	Flags  []Setting
	// Required are the keys that the command cannot do without; those of a sink only when it is the configured one.
	Required []string
	// Connects gives what the driver has against a connection URL, parts of the URL included, and connects to nothing.
	// nil, for a command that does not connect: only the form is looked at.
	Connects func(url string) error
	// Compiles gives what is wrong with the schemas of a directory, a line for each. nil, for a command that needs none:
	// only the form is looked at.
	Compiles func(directory string) error
	// Origins is filled with where each key that is set has its value from: file:line, variable or flag. It may be nil.
	Origins map[string]string
}

// Setting is one value from the command line; a later one beats an earlier one of the same key.
type Setting struct {
	Flag  string // as the user wrote it, for messages: --postgres-url or --set
	Key   string // postgres.url
	Value string // lists with commas, maps as name=value with commas
}

// Load puts the configuration together: flags beat environment beats file beats [Default]. The error is [Problems],
// with all of them; the configuration is then not usable.
func Load(in Input) (Config, error) {
	environ := environment(in.Environ)
	l := loader{values: map[string]raw{}, complete: true, asked: map[string]func(string) error{
		"postgres.url": in.Connects, "postgres.replication_url": in.Connects, "inbox.url": in.Connects,
		"message.schemas": in.Compiles}}
	if in.File != "" {
		f := file{name: in.File, values: l.values, foreign: in.Foreign, lookup: func(name string) (string, bool) {
			value, found := environ[name]
			return value, found
		}}
		l.complete = f.read(in.Text)
		l.problems = f.problems
	}
	l.environment(environ, in.OwnEnv)
	l.flags(in.Flags)
	cfg := l.assign(in.Required)
	if len(l.problems) > 0 {
		return Config{}, l.problems
	}
	if in.Origins != nil {
		for name, value := range l.values {
			in.Origins[name] = value.where
		}
	}
	return cfg, nil
}

type loader struct {
	values   map[string]raw // by key: the last source wins
	complete bool           // false: the file could not be read, so a key without a value may be set there
	problems Problems
	asked    map[string]func(value string) error // by key: who has the last word on a value; see Input
}

func environment(environ []string) map[string]string {
	m := make(map[string]string, len(environ))
	for _, pair := range environ {
		if name, value, found := strings.Cut(pair, "="); found {
			m[name] = value
		}
	}
	return m
}

// Kubernetes puts the address of every Service of the namespace into each container's environment
// (https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables). A Service named cdc-relay,
// or cdc-relay-metrics, makes variables that look like ours; a relay that refused to start for them could not run
// beside its own Service.
var serviceLink = regexp.MustCompile(
	`^CDC_RELAY_([A-Z0-9_]+_)?(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

func (l *loader) environment(environ map[string]string, own []string) {
	names := slices.DeleteFunc(slices.Sorted(func(yield func(string) bool) {
		for name := range environ {
			if !yield(name) {
				return
			}
		}
	}), func(name string) bool {
		return !strings.HasPrefix(name, EnvPrefix) || slices.Contains(own, name)
	})
	for _, name := range names {
		keys := allKeys()
		i := slices.IndexFunc(keys, func(k Key) bool { return k.Env == name })
		switch {
		case i >= 0 && keys[i].Available:
			l.values[keys[i].Name] = raw{where: name, text: environ[name]}
		case i >= 0:
			l.problems = append(l.problems, unknownKey(keys[i].Name, name))
		case serviceLink.MatchString(name):
		default:
			l.problems = append(l.problems, unknownVariable(name, own))
		}
	}
}

func (l *loader) flags(settings []Setting) {
	for _, s := range settings {
		key, known := findKey(s.Key)
		if !known || !key.Available {
			l.problems = append(l.problems, unknownKey(s.Key, s.Flag))
			continue
		}
		l.values[key.Name] = raw{where: s.Flag, text: s.Value}
	}
}

// assign gives every value its type, and checks each key by its rule and then the rules between keys.
func (l *loader) assign(required []string) Config {
	cfg := Default()
	broken := map[string]bool{}
	for _, key := range availableKeys() {
		r, isSet := l.values[key.Name]
		if isSet {
			if err := key.assign(&cfg, r); err != nil {
				broken[key.Name] = true
				l.problems = append(l.problems, Problem{Key: key.Name, Where: r.where, What: "found " + r.shown(key),
					Allowed: key.Allowed})
				continue
			}
		}
		value := reflect.ValueOf(cfg).FieldByIndex(key.index)
		if value.IsZero() || value.Kind() == reflect.Slice && value.Len() == 0 {
			if isRequired(&cfg, key, required) && (isSet || l.complete && !l.blames(key)) {
				l.problems = append(l.problems, Problem{Key: key.Name, Where: r.where, What: "not set, and required",
					Allowed: key.Allowed})
				continue
			}
			if !isSet {
				continue
			}
		}
		if complaint := l.complaint(key, value.Interface()); complaint != "" {
			broken[key.Name] = true
			found := "found " + r.shown(key)
			if complaint != notAllowed {
				found += ": " + key.mask(complaint)
			}
			l.problems = append(l.problems, Problem{Key: key.Name, Where: r.where, What: found, Allowed: key.Allowed})
		} else if read := rules[key.Name].read; read != nil {
			reflect.ValueOf(&cfg).Elem().FieldByIndex(key.index).SetString(read(value.String()))
		}
	}
	for _, b := range relations {
		if !slices.ContainsFunc(b.keys, func(k string) bool { return broken[k] }) {
			l.checkBetween(&cfg, b)
		}
	}
	return cfg
}

// complaint returns the error of a value: by the key's rule, then by the rules of its users.
func (l *loader) complaint(key Key, value any) string {
	complaint := rules[key.Name].check(value)
	ask := l.asked[key.Name]
	if complaint != "" || ask == nil || value == "" {
		return complaint
	}
	if err := ask(value.(string)); err != nil {
		return err.Error()
	}
	return ""
}

// isRequired leaves out what another sink than the configured one needs. The key sink comes before those of the sinks.
func isRequired(cfg *Config, key Key, required []string) bool {
	return slices.Contains(required, key.Name) && (cfg.Sink == SinkKafka || !within(key.Name, "kafka"))
}

// blames reports whether a problem is known already: a key that was set, but not readably, is not missing too.
func (l *loader) blames(key Key) bool {
	return slices.ContainsFunc(l.problems, func(p Problem) bool { return p.Key == key.Name })
}

func (l *loader) checkBetween(cfg *Config, b relation) {
	complaint := b.check(cfg)
	if complaint == "" {
		return
	}
	var where []string
	for _, key := range b.keys {
		if r, isSet := l.values[key]; isSet && !slices.Contains(where, r.where) {
			where = append(where, r.where)
		}
	}
	l.problems = append(l.problems, Problem{Key: b.keys[0], Where: strings.Join(where, ", "), What: "found " + complaint,
		Allowed: b.allowed})
}

// unknownKey says nothing of the value: a key that is misspelt may be a secret's.
func unknownKey(path, where string) Problem {
	if _, known := findKey(path); known || isSection(path) {
		return Problem{Key: path, Where: where, What: "unknown key: not available in this version of cdc-relay"}
	}
	var names []string
	for _, k := range availableKeys() {
		names = append(names, k.Name)
	}
	return Problem{Key: path, Where: where, What: "unknown key; the nearest known key is " + nearest(path, names)}
}

func unknownSection(path, where string) Problem {
	return Problem{Key: path, Where: where, What: "unknown key; the nearest known key is " + nearest(path, sections())}
}

func unknownVariable(name string, own []string) Problem {
	names := slices.Clone(own)
	for _, k := range availableKeys() {
		names = append(names, k.Env)
	}
	return Problem{Where: name, What: "unknown key; the nearest known variable is " + nearest(name, names)}
}
