package registry

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// referencesMost bounds the schemas that one schema is made of.
const referencesMost = 500

// format is one value of message.format.
type format struct {
	name, kind, extension string
	compile               func(text string, references []reference) (codec, error)
}

var formats = map[string]format{
	"avro":        {"avro", "AVRO", ".avsc", compileAvro},
	"protobuf":    {"protobuf", "PROTOBUF", ".proto", compileProtobuf},
	"json_schema": {"json_schema", "JSON", ".json", compileJSONSchema},
}

// reference is a schema by the name under which another one uses it. Those come first that others need.
type reference struct{ name, text string }

// errUnasked reports that the registry's first answer is still under way.
var errUnasked = errors.New("the schema registry was not asked yet")

// find is the subject's schema with its id: that of a file, which the registry must know, or the registry's own.
func (r *Registry) find(ctx context.Context, subject string, register bool) (*registered, error) {
	if subject == "" || subject == "." || subject == ".." { // as a path they would name something else
		return nil, &Lack{subject, "a subject cannot have that name, which comes of the row's columns",
			"correct registry.subject, or the column that it names", false}
	}
	text, file, err := r.fromFile(subject)
	switch {
	case err != nil:
		return nil, err
	case file == "":
		found, err := r.client.version(ctx, subject, r.c.Version)
		return found, r.lacking(ctx, subject, file, err)
	}
	own := registered{Schema: text, Type: r.format.kind}
	found, err := r.client.lookUp(ctx, subject, own)
	if register && isMissing(err) {
		if _, err = r.client.register(ctx, subject, own); err == nil {
			found, err = r.client.lookUp(ctx, subject, own)
		}
	}
	if err != nil {
		return nil, r.lacking(ctx, subject, file, err)
	}
	found.Schema, found.Type = text, r.format.kind
	return found, nil
}

// fromFile is the schema that registry.files has of the subject; no file: empty.
func (r *Registry) fromFile(subject string) (text, file string, err error) {
	if r.c.Files == "" || strings.ContainsAny(subject, "/\\\x00") || subject == "" {
		return "", "", nil
	}
	file = filepath.Join(r.c.Files, subject+r.format.extension)
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return "", "", nil
	}
	if err != nil {
		return "", "", &Lack{subject, "its file cannot be read: " + err.Error(), "correct registry.files", false}
	}
	return string(b), file, nil
}

// lacking makes a *Lack of an answer that the subject has no such schema.
func (r *Registry) lacking(ctx context.Context, subject, file string, err error) error {
	said, is := errors.AsType[*answerError](err)
	if !is {
		return err
	}
	l := &Lack{Subject: subject, Fix: "register it: " + r.RegisterCommand(subject, file)}
	switch {
	case isMissing(err) && file != "":
		l.What, l.unregistered = "the registry does not have the schema of "+file, true
		l.Fix += "; or set registry.auto_register"
	case said.Code == noVersion:
		l.What = "the registry has no version " + r.c.Version + " of it"
	case isMissing(err):
		l.What = "the registry has no such subject"
		l.Fix += "; or correct registry.subject"
	case said.Status == incompatible:
		l.What, l.Fix = "the registry refuses the schema of "+file+" as incompatible: "+said.Message,
			"correct the schema, or the subject's compatibility"
	case said.Status == unprocessable:
		l.What, l.Fix = "the registry refuses the schema: "+said.Message, "correct the schema"
	case r.refuses(ctx, err):
		l.What, l.Fix = "the registry refuses the name: "+said.Message,
			"correct registry.subject, or the column that it names"
	default:
		return err
	}
	return l
}

// refuses reports whether an answer that a server, or a proxy, gives to what it cannot read at all is about this one
// subject: the registry has an answer to another question. Else it may be the wrong address.
func (r *Registry) refuses(ctx context.Context, err error) bool {
	said, is := errors.AsType[*answerError](err)
	if !is {
		return false
	}
	switch said.Status {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusRequestURITooLong,
		http.StatusRequestHeaderFieldsTooLarge: // some servers count the request line as one
		return r.Ping(ctx) == nil
	}
	return false
}

// RegisterCommand returns the command that registers the subject's schema; file is empty if there is none yet.
func (r *Registry) RegisterCommand(subject, file string) string {
	if file == "" {
		file = "SCHEMA" + r.format.extension
	}
	return fmt.Sprintf("jq -Rs '{schemaType: %q, schema: .}' %s | curl -H 'Content-Type: %s' --data @- '%s'",
		r.format.kind, file, contentType, r.client.shown(subjectPath(subject)+"/versions"))
}

// references gets the schemas that a schema names, those first that others need.
func (r *Registry) references(ctx context.Context, subject string, names []refersTo) (list []reference, err error) {
	seen := map[string]bool{}
	var follow func(names []refersTo) error
	follow = func(names []refersTo) error {
		for _, n := range names {
			if seen[n.Name] {
				continue
			}
			if seen[n.Name] = true; len(seen) > referencesMost {
				return &Lack{subject, fmt.Sprintf("its schema refers to more than %d others", referencesMost),
					"make it smaller", false}
			}
			found, err := r.client.version(ctx, n.Subject, strconv.Itoa(n.Version))
			if isMissing(err) || r.refuses(ctx, err) {
				return &Lack{subject, fmt.Sprintf("its schema refers to %s, which the registry does not have",
					named(n.Subject, n.Version)), "register that", false}
			}
			if err != nil {
				return err
			}
			if err := follow(found.References); err != nil {
				return err
			}
			list = append(list, reference{n.Name, found.Schema})
		}
		return nil
	}
	return list, follow(names)
}

func named(subject string, version int) string {
	if version == 0 {
		return "the schema of " + subject
	}
	return "version " + versionText(version) + " of " + subject
}

func versionText(version int) string { return strconv.Itoa(version) }

func idText(prefix [5]byte) string {
	return strconv.FormatUint(uint64(binary.BigEndian.Uint32(prefix[1:])), 10)
}

// oneLine is an error's text, shortened, without line ends.
func oneLine(err error) string {
	const most = 600
	text := strings.Join(strings.Fields(err.Error()), " ")
	return text[:min(len(text), most)]
}
