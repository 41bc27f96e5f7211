package schemas

import (
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// sharedEffort is the effort of schemas that were compiled together: the library calls their extensions without saying
// for whom, so one payload is validated at a time.
type sharedEffort struct {
	mu     sync.Mutex
	effort Effort
}

// validate checks a value; it panics with a *TooLong when that takes too long.
func (s *sharedEffort) validate(schema *jsonschema.Schema, value any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.effort.Begin()
	return schema.Validate(value)
}

// Validate counts a step; the library calls it for each value that it holds against a schema.
func (s *sharedEffort) Validate(*jsonschema.ValidatorContext, any) { s.effort.Step() }

func newCompiler(draft *jsonschema.Draft) *jsonschema.Compiler {
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(draft)
	compiler.AssertFormat()
	return compiler
}

// bound gives every schema of the compiler an extension that counts steps.
func bound(compiler *jsonschema.Compiler) *sharedEffort {
	s := &sharedEffort{}
	compiler.RegisterVocabulary(&jsonschema.Vocabulary{
		URL: "urn:cdc-relay:effort",
		Compile: func(*jsonschema.CompilerContext, map[string]any) (jsonschema.SchemaExt, error) {
			return s, nil
		},
	})
	compiler.AssertVocabs()
	return s
}

// compileTwice compiles a schema, once to learn of all that is wrong with it: a compiler with a vocabulary of its own
// leaves out the metaschema's rules on formats and content.
func compileTwice(strict, bounded *jsonschema.Compiler, at string) (*jsonschema.Schema, error) {
	if _, err := strict.Compile(at); err != nil {
		return nil, err
	}
	return bounded.Compile(at)
}
