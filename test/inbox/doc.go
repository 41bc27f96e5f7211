// Package inbox holds the tests of the modules inbox and emit on real servers. It is a module of its own: who imports
// inbox gets neither the harness nor the relay.
package inbox
