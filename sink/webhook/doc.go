// Package webhook is the [sink.Driver] for HTTP endpoints: a topic is an endpoint of the configuration, and each event
// is one POST, signed as the Standard Webhooks specification 1.0.0 says. Where an event goes is never a row's to say
// beyond the name of its topic.
//
// # How events are sent
//
// A topic has as many partitions as there are lanes. A key's lane is chosen by its hash, and each lane sends one
// request at a time and waits for its answer. So a later event of a key never overtakes an earlier one, whatever
// becomes of that. A lane tells what was delivered at least every [stint], however many events wait for it.
//
// # What an answer means
//
//	2xx                           delivered
//	Config.Faults                 this event's own fault, permanently
//	Config.Retried                this event's own fault, maybe for now: its attempts are spent
//	408, 425, 429, 5xx, silence   the endpoint's trouble, which passes; Retry-After is kept to
//	410                           the receiver wants no more: the endpoint is not asked again for an hour
//	anything else, redirects too  the endpoint's trouble: a person must look
//
// An event that the endpoint fails on time and again, while it takes others in between, is set aside as its own fault
// ([stumbles]), so that a lane is not blocked by one event forever, and the endpoint not silenced by it. 408, 425 and
// 429 are never an event's fault, and 503 without Retry-After is one that is doubted: no attempt is spent.
//
// # Guarantees
//
//	order per key                 as committed, of the first delivery
//	loss                          none: a 2xx answer is the receiver's word that it has the event
//	duplicates, cut or restart    at most one event per lane, with the same webhook-id: receivers cannot be read back
//	duplicates, kill -9 of relay  bounded by limits.max_unrecorded, with the same webhook-id
//	duplicates, frozen relay      one request per lane that was on its way, and what of a lane's batch follows it
//	position in the journal       topic, lane, -1: there is none
//
// Tested in webhook_test.go, answers_test.go, connect_test.go and message_test.go, on a real server behind a proxy that
// cuts; whom failures blame in blame_test.go, on a clock of its own.
package webhook
