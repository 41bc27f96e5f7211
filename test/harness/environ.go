package harness

import (
	"os"
	"slices"
	"strings"
)

// dataAbove is the folder below which the servers keep their data, "" for the system's temporary one.
func dataAbove() string { return os.Getenv("CDC_RELAY_TEST_DATA") }

// relayEnviron is this process's environment without the variables that are for the tests (see the package comment) or
// for a relay of the developer's own: the relay would take them for configuration, and refuses a key that it does not
// know.
func relayEnviron() []string {
	return slices.DeleteFunc(os.Environ(), func(entry string) bool { return strings.HasPrefix(entry, "CDC_RELAY_") })
}
