package registry

import (
	"context"
	"encoding/binary"
	"fmt"
	"regexp"
	"strings"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/cdc-relay/cdc-relay/internal/message/schemas"
)

// mainFile is the name under which a schema is compiled that others have no name for, unless one of them has it.
const mainFile = "schema.proto"

const (
	// nestedMost bounds messages in messages, as the libraries of other languages do ("ParseFromString: too many levels
	// of nesting"): what is deeper could not be read.
	nestedMost = 100
	// rescanMost bounds the depth of a payload times its bytes: a google.protobuf.Any is read twice at each level.
	rescanMost = 1 << 30
)

// protobufSchema makes messages of one .proto. Payloads are JSON as Protobuf maps it ("ProtoJSON Format").
type protobufSchema struct {
	messages map[string]protobufMessage // by full name
	first    string
	read     protojson.UnmarshalOptions
}

type protobufMessage struct {
	descriptor protoreflect.MessageDescriptor
	indexes    []byte // as they are on the wire
}

func compileProtobuf(text string, references []reference) (codec, error) {
	sources := make(map[string]string, len(references)+1)
	for _, r := range references {
		sources[r.name] = r.text
	}
	name := mainFile
	for _, taken := sources[name]; taken; _, taken = sources[name] {
		name = "_" + name
	}
	sources[name] = text
	compiler := protocompile.Compiler{Resolver: protocompile.WithStandardImports(
		&protocompile.SourceResolver{Accessor: protocompile.SourceAccessorFromMap(sources)})}
	files, err := compiler.Compile(context.Background(), name)
	if err != nil {
		return nil, err
	}
	main, known, err := linked(files[0])
	if err != nil {
		return nil, err
	}
	s := &protobufSchema{messages: map[string]protobufMessage{},
		read: protojson.UnmarshalOptions{Resolver: dynamicpb.NewTypes(known), RecursionLimit: nestedMost}}
	list := main.Messages()
	if list.Len() == 0 {
		return nil, fmt.Errorf("it has no message")
	}
	s.first = string(list.Get(0).FullName())
	s.add(list, nil)
	return s, nil
}

// linked is the file, with those that it imports, as descriptors of the Protobuf library: the compiler's own look each
// property of a field up in the source's tree, for each value.
func linked(file protoreflect.FileDescriptor) (protoreflect.FileDescriptor, *protoregistry.Files, error) {
	set, seen := &descriptorpb.FileDescriptorSet{}, map[string]bool{}
	var add func(protoreflect.FileDescriptor)
	add = func(f protoreflect.FileDescriptor) {
		if seen[f.Path()] {
			return
		}
		seen[f.Path()] = true
		for i := range f.Imports().Len() {
			add(f.Imports().Get(i).FileDescriptor)
		}
		set.File = append(set.File, protodesc.ToFileDescriptorProto(f))
	}
	add(file)
	known, err := protodesc.NewFiles(set)
	if err != nil {
		return nil, nil, err
	}
	main, err := known.FindFileByPath(file.Path())
	return main, known, err
}

// add takes in the messages that stand at these indexes, and those inside of them. An index counts what the source
// calls a message, as Java does: the compiler makes one of each map, too, which has no index.
func (s *protobufSchema) add(list protoreflect.MessageDescriptors, at []int64) {
	next := int64(0)
	for i := range list.Len() {
		m, path := list.Get(i), append(at[:len(at):len(at)], next)
		if m.IsMapEntry() {
			continue
		}
		next++
		s.messages[string(m.FullName())] = protobufMessage{m, indexesOf(path)}
		s.add(m.Messages(), path)
	}
}

// indexesOf is the path to a message in its file as Confluent writes it: the length and the indexes, as varints in
// zig-zag; the first message of a file, which most are, is a single zero ("Wire format", Protobuf).
func indexesOf(path []int64) []byte {
	if len(path) == 1 && path[0] == 0 {
		return []byte{0}
	}
	b := binary.AppendVarint(nil, int64(len(path)))
	for _, index := range path {
		b = binary.AppendVarint(b, index)
	}
	return b
}

func (s *protobufSchema) append(dst []byte, record string, payload []byte) ([]byte, error) {
	if record == "" {
		record = s.first
	}
	m, has := s.messages[record]
	if !has {
		return dst, &Lack{What: fmt.Sprintf("its schema has no message %.200q", record),
			Fix: "register a version that has it, or correct registry.record"}
	}
	shape := schemas.Measure(payload)
	if excess := shape.Oversize(); excess != "" {
		return dst, &wrong{what: excess}
	}
	if shape.Depth*len(payload) > rescanMost {
		return dst, &wrong{what: fmt.Sprintf("it is nested %d levels deep in %d bytes, too much to encode",
			shape.Depth, len(payload))}
	}
	value := dynamicpb.NewMessage(m.descriptor)
	if err := s.read.Unmarshal(payload, value); err != nil {
		return dst, &wrong{what: withoutValues(err)}
	}
	// what reading has seen to be there is not looked for again
	write := proto.MarshalOptions{Deterministic: true, AllowPartial: true}
	out, err := write.MarshalAppend(append(dst, m.indexes...), value)
	if err != nil {
		return dst, &wrong{what: "it cannot be written as " + record}
	}
	return out, nil
}

var (
	protoError = regexp.MustCompile(`^proto:[\s\x{a0}]*(syntax error )?(?:\((line \d+:\d+)\):[\s\x{a0}]*)?(.*)$`)
	// protoRules are the messages of protojson that quote no value of the payload.
	protoRules = regexp.MustCompile(`^(unknown field .*|duplicate field .*|invalid value for \S+ field [^:]+|` +
		`invalid value for \S+ key|error parsing .* is already set|required field .* not set|` +
		`invalid google\.protobuf\.\S+( value)?|google\.protobuf\.\S+ value out of range|missing "value" field)`)
)

// withoutValues returns protojson's message without the value that it shows at the end.
func withoutValues(err error) string {
	const most = 300
	parts := protoError.FindStringSubmatch(strings.ReplaceAll(err.Error(), "\n", " "))
	if parts == nil {
		return "it is not JSON that fits"
	}
	rule := protoRules.FindString(parts[3])
	switch {
	case parts[1] != "":
		rule = "it is not JSON, or a value's type differs from the field's"
	case rule == "":
		rule = "it does not fit"
	}
	rule = rule[:min(len(rule), most)]
	if parts[2] != "" {
		return parts[2] + ": " + rule
	}
	return rule
}
