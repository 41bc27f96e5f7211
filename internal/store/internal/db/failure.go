package db

import "strings"

// FailureRow is the name under which a failure stands beside the outbox row that is to show it, in outbox.dead_set and
// outbox.retry_set. Its columns have names that no column of the application's has by chance.
const FailureRow = "cdc_relay_failure"

// FailureSample is a failure of the types that each has.
const FailureSample = `SELECT ''::text AS cdc_relay_last_error, 0 AS cdc_relay_attempts, ''::text AS cdc_relay_class`

// failureSet puts the columns of a failure where the configuration has values in braces: what is written never stands
// in the text of a statement.
func failureSet(set string) string {
	return strings.NewReplacer("{last_error}", FailureRow+".cdc_relay_last_error",
		"{attempts}", FailureRow+".cdc_relay_attempts", "{error_class}", FailureRow+".cdc_relay_class").Replace(set)
}
