// Handles each event once, in its key's order, in the transaction that has its effect. The tables and the rules are
// those of the relay's inbox for Go.
export { Outage, Permanent, RetryAfter, SetBack, Unavailable } from './errors.js'
export { Inbox, type Handler, type Metrics, type Options, type Outcome } from './inbox.js'
export { type InboxEvent, type Message } from './message.js'
export { startRetries } from './retries.js'
export { type Tx } from './tx.js'
