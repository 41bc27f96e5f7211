package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// value is a flag or an argument: the field of a command that it fills, and what the field's tag says of it.
type value struct {
	field reflect.Value
	tag   reflect.StructTag
	name  string
	env   string // empty: it has none
	set   bool   // by the environment or the command line
	given bool   // on the command line
	wrong error  // what the environment has for it
}

// Set implements pflag.Value: a text of the command line.
func (v *value) Set(text string) error {
	if !v.given { // what the command line says replaces the environment's and the default
		v.field.SetZero()
	}
	v.given, v.set = true, true
	return v.add(text)
}

// start gives the field what it has without the command line.
func (v *value) start(environ string, found bool) error {
	switch {
	case found:
		v.set = true
		return v.add(environ)
	case v.initial() != "":
		return v.add(v.initial())
	}
	return nil
}

// add sets the field, or appends to it what it is a list of.
func (v *value) add(text string) error {
	if !v.isList() {
		target := v.field
		if target.Kind() == reflect.Pointer {
			target.Set(reflect.New(target.Type().Elem()))
			target = target.Elem()
		}
		return v.read(text, target)
	}
	texts := []string{text}
	if v.tag.Get("sep") != "none" && !v.positional() {
		texts = slices.DeleteFunc(strings.Split(text, ","), func(s string) bool { return s == "" })
	}
	for _, one := range texts {
		element := reflect.New(v.field.Type().Elem()).Elem()
		if err := v.read(one, element); err != nil {
			return err
		}
		v.field.Set(reflect.Append(v.field, element))
	}
	return nil
}

// read reads one text into a field or an element of a list.
func (v *value) read(text string, into reflect.Value) error {
	allowed := ""
	switch target := into.Addr().Interface().(type) {
	case *string:
		if *target = text; v.tag.Get("type") == "path" {
			*target = absolute(text)
		}
		if text == "" && v.tag.Get("empty") == "no" {
			return errors.New(`found ""; allowed: a text that is not empty, or no flag at all`)
		}
		if options := v.options(); v.tag.Get("enum") != "" && !slices.Contains(options, text) {
			allowed = strings.Join(options, ", ")
		}
	case *bool:
		switch strings.ToLower(text) {
		case "true", "1", "yes":
			*target = true
		case "false", "0", "no":
			*target = false
		default:
			allowed = "true, 1, yes, false, 0, no"
		}
	case *time.Duration:
		var err error
		if *target, err = time.ParseDuration(text); err != nil {
			allowed = "a duration such as 500ms, 30s or 5m"
		}
	default: // the only other kind that [line.value] lets pass
		n, err := strconv.ParseInt(text, 0, into.Type().Bits())
		if into.SetInt(n); err != nil {
			allowed = "a whole number"
		}
	}
	if allowed == "" {
		return nil
	}
	return fmt.Errorf("found %q; allowed: %s", text, allowed)
}

// readable reports whether read knows the type.
func readable(t reflect.Type) bool {
	return slices.Contains([]reflect.Kind{reflect.String, reflect.Bool, reflect.Int, reflect.Int64}, t.Kind())
}

// absolute is a path from here or from the user's home.
func absolute(path string) string {
	if path == "" || path == "-" {
		return path
	}
	if rest, is := strings.CutPrefix(path, "~/"); is {
		if home, err := os.UserHomeDir(); err == nil {
			return filepath.Join(home, rest)
		}
	}
	if full, err := filepath.Abs(path); err == nil {
		return full
	}
	return path
}

// String implements pflag.Value: the default for --help, and what cobra reads of that flag itself.
func (v *value) String() string {
	if v.isBool() {
		return strconv.FormatBool(v.field.Bool())
	}
	return v.initial()
}

// Type implements pflag.Value: what stands for the value in --help.
func (v *value) Type() string {
	if v.isBool() {
		return "bool"
	}
	if shown := v.tag.Get("placeholder"); shown != "" {
		return shown
	}
	one := strings.ToUpper(v.name[strings.LastIndexByte(v.name, '-')+1:])
	switch t := v.element(); {
	case t == reflect.TypeFor[time.Duration]():
		one = "DURATION"
	case t.Kind() == reflect.Int, t.Kind() == reflect.Int64:
		one = "N"
	}
	if v.isList() {
		one += ",..."
	}
	return one
}

// element is the type of what is read: the field's, or of what it points to or lists.
func (v *value) element() reflect.Type {
	t := v.field.Type()
	if t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		return t.Elem()
	}
	return t
}

func (v *value) isList() bool     { return v.field.Kind() == reflect.Slice }
func (v *value) isBool() bool     { return v.field.Kind() == reflect.Bool }
func (v *value) initial() string  { return v.tag.Get("default") }
func (v *value) required() bool   { _, is := v.tag.Lookup("required"); return is }
func (v *value) positional() bool { _, is := v.tag.Lookup("arg"); return is }
func (v *value) optional() bool   { _, is := v.tag.Lookup("optional"); return is }

// options are the values that it can have; none if there is no list of them.
func (v *value) options() []string {
	return strings.FieldsFunc(v.tag.Get("enum")+v.tag.Get("values"), func(r rune) bool { return r == ',' })
}

// usage is its line in --help.
func (v *value) usage() string {
	help := v.tag.Get("help")
	if v.env == "" {
		return help
	}
	return strings.TrimSuffix(help, ".") + " ($" + v.env + ")"
}

// argument is how it stands in a command line.
func (v *value) argument() string {
	text := "<" + v.name + ">"
	if v.isList() {
		text += " ..."
	}
	if v.optional() {
		return "[" + text + "]"
	}
	return text
}
