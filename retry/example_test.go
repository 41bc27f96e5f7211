package retry_test

import (
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/retry"
)

func ExamplePolicy_Next() {
	policy := retry.Policy{MaxAttempts: 4, Backoff: retry.Backoff{Initial: 50 * time.Millisecond, Max: 5 * time.Minute}}
	for attempts := 1; ; attempts++ {
		pause, again := policy.Next(attempts, 0)
		if !again {
			fmt.Println("dead after", attempts, "attempts")
			break
		}
		fmt.Println("again in", pause)
	}
	// Output:
	// again in 50ms
	// again in 100ms
	// again in 200ms
	// dead after 4 attempts
}

func ExamplePolicy_schedule() {
	policy := retry.Policy{MaxAttempts: 5, Schedule: []time.Duration{time.Minute, 5 * time.Minute, 15 * time.Minute}}
	for attempts := 1; attempts < policy.MaxAttempts; attempts++ {
		fmt.Println(policy.Pause(attempts, 0))
	}
	// Output:
	// 1m0s
	// 5m0s
	// 15m0s
	// 15m0s
}
