package registry

import "github.com/cdc-relay/cdc-relay/internal/message/schemas"

// jsonSchema lets the payload's own bytes through, if they fit.
type jsonSchema struct{ schema *schemas.Schema }

func compileJSONSchema(text string, references []reference) (codec, error) {
	others := make(map[string]string, len(references))
	for _, r := range references {
		others[r.name] = r.text
	}
	s, err := schemas.Compile(text, others)
	if err != nil {
		return nil, err
	}
	return jsonSchema{s}, nil
}

func (s jsonSchema) append(dst []byte, _ string, payload []byte) ([]byte, error) {
	if why := s.schema.Misfit(payload); why != "" {
		return dst, &misplaced{why}
	}
	return append(dst, payload...), nil
}

// misplaced says where and why a payload does not fit, in the words of package schemas.
type misplaced struct{ text string }

func (m *misplaced) Error() string { return m.text }
