// Package protocol judges the rules by which consumers share one inbox: a random model of logs, databases, consumers
// and what happens to them, small enough to be read in one sitting. It holds no product code: the rules themselves are
// kept by the packages lanes and ledger, and stand in docs/inbox.md.
//
// It is tests.
package protocol
