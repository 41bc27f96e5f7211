// Package openapi holds docs/openapi.yaml to the server that it describes: it asks a real relay for everything that
// stands there, refusals included, and has a validator compare each request and each answer with the document.
//
// Everything of it is in its tests. It is a module of its own, so that the validator is no one's dependency.
package openapi
