package record

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
)

// Patch is a change to what any number of dead letters send: JSON merge patches (RFC 7396), in which null removes a
// member. Applied a second time it changes nothing, so an edit that was stopped half way is begun again.
type Patch struct {
	Payload   []byte // nil: the payload stays as it is
	Headers   []byte // nil: the headers stay as they are
	Tombstone bool   // the payload becomes SQL NULL
}

// EditAll is a person's change to all open dead letters that match.
type EditAll struct {
	Filter Filter
	Patch  Patch
	Who    string
	Note   string
	Replay bool // ask for the replay of those that are changed, too
}

// EditStep is the result of one portion of an edit.
type EditStep struct {
	Seen    int          // dead letters looked at; 0: there are no more
	Edited  int          // of these; the others stay as they are
	Refused []NotPatched // of the others, those that cannot be changed like this
	Request int64        // the number of the replay; 0: nothing is replayed
	Next    DeadCursor
}

// NotPatched is a dead letter that a patch cannot change, and why. Names in JSON are stable.
type NotPatched struct {
	ID  string `json:"id"`
	Why string `json:"why"`
}

// Check refuses a patch that changes nothing, or that no dead letter could take.
func (p Patch) Check() error {
	switch {
	case p.Payload == nil && p.Headers == nil && !p.Tombstone:
		return fmt.Errorf("%w: nothing is to be changed", ErrEdit)
	case p.Payload != nil && p.Tombstone:
		return fmt.Errorf("%w: a payload cannot be merged and removed", ErrEdit)
	}
	for _, part := range []struct {
		name  string
		patch []byte
	}{{"payload", p.Payload}, {"headers", p.Headers}} {
		if part.patch == nil {
			continue
		}
		members, err := object(part.patch)
		if err != nil {
			return fmt.Errorf("%w: %s: want a JSON object to merge, such as {\"tenant\": \"a\", \"old\": null}", ErrEdit,
				part.name)
		}
		for name, value := range members {
			if _, text := value.(string); part.name == "headers" && value != nil && !text {
				return fmt.Errorf("%w: headers: want a string or null for %.100q", ErrEdit, name)
			}
		}
	}
	return nil
}

// Apply returns what a dead letter sends with the patch, and whether that is something else.
func (p Patch) Apply(payload, headers []byte) (newPayload, newHeaders []byte, changed bool, err error) {
	newPayload, newHeaders = payload, headers
	switch {
	case p.Tombstone:
		newPayload, changed = nil, payload != nil
	case p.Payload != nil:
		if newPayload, changed, err = merged(payload, p.Payload); err != nil {
			return payload, headers, false, fmt.Errorf("%w: the payload is not a JSON object", ErrEdit)
		}
	}
	if p.Headers != nil {
		was := headers
		if was == nil {
			was = []byte("{}")
		}
		var other bool
		if newHeaders, other, err = merged(was, p.Headers); err != nil {
			return payload, headers, false, fmt.Errorf("%w: the headers are not a JSON object", ErrEdit)
		}
		if !other {
			newHeaders = headers
		}
		changed = changed || other
	}
	return newPayload, newHeaders, changed, nil
}

// merged applies a merge patch to a JSON object. One that it changes nothing of keeps its bytes.
func merged(text, patch []byte) (now []byte, changed bool, err error) {
	was, err := object(text)
	if err != nil {
		return text, false, err
	}
	wants, err := object(patch)
	if err != nil || !merge(was, wants) {
		return text, false, err
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	err = encoder.Encode(was)
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), true, err
}

// merge changes the object as the patch wants it, and reports whether that was something else.
func merge(into, patch map[string]any) (changed bool) {
	for name, wants := range patch {
		was, has := into[name]
		switch wants := wants.(type) {
		case nil:
			delete(into, name)
			changed = changed || has
		case map[string]any:
			inner, is := was.(map[string]any)
			if !is {
				inner = map[string]any{}
				into[name] = inner
			}
			changed = merge(inner, wants) || changed || !is
		default:
			if has && same(was, wants) {
				continue
			}
			into[name], changed = wants, true
		}
	}
	return changed
}

// same compares two JSON values; numbers by their text.
func same(a, b any) bool {
	one, err := json.Marshal(a)
	other, failed := json.Marshal(b)
	return err == nil && failed == nil && bytes.Equal(one, other)
}

// object reads a JSON object, with numbers as they are written.
func object(text []byte) (members map[string]any, err error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err = decoder.Decode(&members); err == nil && members == nil {
		err = ErrEdit
	}
	if err == nil {
		if _, end := decoder.Token(); end != io.EOF {
			err = ErrEdit
		}
	}
	return members, err
}
