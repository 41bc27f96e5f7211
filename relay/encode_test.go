package relay

import (
	"testing"
	"unsafe"

	"github.com/cdc-relay/cdc-relay/internal/message"
	"github.com/cdc-relay/cdc-relay/internal/settle"
)

// Break it catches: a delivery that grew beyond what the window counts for it. Seen to fail with nine words more in a
// delivery.
func TestDeliveryIsNotLargerThanItsCost(t *testing.T) {
	if got := unsafe.Sizeof(settle.Delivery{}); got > message.Overhead {
		t.Errorf("size of a delivery: got %d, want at most message.Overhead, %d", got, message.Overhead)
	}
}
