package offsets_test

import (
	"fmt"

	"github.com/cdc-relay/cdc-relay/offsets"
)

// Two transactions whose events are done in the reverse order: nothing is confirmed past the one that is pending.
func Example() {
	ledger := offsets.New(100)
	ledger.Begin(0)
	first := ledger.Add()
	ledger.Commit(200)
	ledger.Begin(0)
	second := ledger.Add()
	ledger.Commit(300)

	ledger.Done(second)
	fmt.Println(uint64(ledger.Confirmed()), "with", ledger.Pending(), "pending")
	ledger.Done(first)
	fmt.Println(uint64(ledger.Confirmed()), "with", ledger.Pending(), "pending")
	// Output:
	// 100 with 1 pending
	// 300 with 0 pending
}
