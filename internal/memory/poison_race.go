//go:build race

package memory

// poison overwrites memory that must not be read any more, so that tests notice a reader.
func poison(b []byte) {
	for i := range b {
		b[i] = 0xdb
	}
}
