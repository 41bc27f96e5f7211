package resident

import "testing"

// Breaks caught: what the kernel refuses asked of it, and a process that is broken by what it gave back. Seen to fail
// with the mappings of others not left out.
func TestReleaseLeavesTheProgramAsItWas(t *testing.T) {
	for range 3 {
		if err := Release(); err != nil {
			t.Fatal(err)
		}
	}
}
