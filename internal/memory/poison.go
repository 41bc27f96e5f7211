//go:build !race

package memory

// poison does something in tests only.
func poison([]byte) {}
