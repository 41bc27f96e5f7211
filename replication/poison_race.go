//go:build race

package replication

// poison overwrites released memory, so that tests see a read after its release.
func poison(b []byte) {
	for i := range b {
		b[i] = 0xdb
	}
}
