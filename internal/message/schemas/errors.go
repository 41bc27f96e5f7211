package schemas

import "errors"

// What an encoder's error may wrap. Any other error means that the registry could not be asked yet.
var (
	// ErrUnfit: the payload does not fit its schema, and never will.
	ErrUnfit = errors.New("the payload does not fit its schema")
	// ErrNoSchema: the registry has answered that no usable schema; the event waits until there is one.
	ErrNoSchema = errors.New("no usable schema")
)
