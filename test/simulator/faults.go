package simulator

import "slices"

// Faults are the kinds of trouble that the profile draws, by the names under which [Counts] has how often each took
// place, and the kinds of broker that have it, none for all. A test holds that each did.
var Faults = map[string][]string{
	aborted: nil, appDeletes: nil, callSlow: nil, deathLingers: nil, brokersAway: nil, longTransaction: nil,
	noLeader: nil, partitionTrouble: nil, publicationDropped: nil, publicationDrifts: nil, requestSlow: nil,
	requestNotWritten: nil, rowUnreadable: nil, secondTable: nil, tableComes: nil, tableGoes: nil, tableAgain: nil,
	shownLate: nil, startSlow: nil, statusLost: nil,
	tailFails: {Kafka, Conditional}, topicForbidden: nil, topicMissing: nil, topicDeleted: {Kafka, Confirm},
	foreignRecord: {Kafka, Conditional}, endsSpooling: nil, parkedBehind: {Kafka},
	questionFails: {Conditional},
	connectionCut: {Confirm}, messageLate: {Confirm}, answerWithout: {Confirm}, messageReturned: {Confirm},
	messageNacked: {Confirm}, endpointAsksPause: {Confirm},
}

// faultsOf are those of a kind of broker.
func faultsOf(kind string) (names []string) {
	for name, kinds := range Faults {
		if kinds == nil || slices.Contains(kinds, kind) {
			names = append(names, name)
		}
	}
	return names
}

// zeroOf are the fields of [Counts] that stay 0 with a kind of broker.
var zeroOf = map[string][]string{
	Kafka:       {"ReadBehind", "Moved", "Cuts", "Repeatable"},
	Conditional: {"Cuts", "Repeatable", "Duplicates"},
	Confirm:     {"ReadBehind", "Moved", "TailReads", "Lost", "Republished"},
}

const (
	aborted            = "transaction rolled back"
	appDeletes         = "row deleted by the application"
	callSlow           = "SQL call slow"
	deathLingers       = "death noticed late by the server"
	brokersAway        = "brokers away"
	longTransaction    = "transaction of more than a minute"
	noLeader           = "partition without a leader"
	partitionTrouble   = "partition in trouble"
	publicationDropped = "publication dropped"
	publicationDrifts  = "publication without the table"
	requestSlow        = "request slow"
	requestNotWritten  = "request not written"
	rowUnreadable      = "transaction that cannot be read"
	secondTable        = "table made anew"
	shownLate          = "commit visible late"
	startSlow          = "start slow"
	statusLost         = "status lost"
	tailFails          = "reading a topic's end fails"
	topicForbidden     = "topic forbidden"
	topicMissing       = "topic missing"
	topicDeleted       = "topic deleted"
	questionFails      = "question to a stream fails"
	connectionCut      = "connection cut"
	messageLate        = "message arrives after its sender gave it up"
	answerWithout      = "answer that says nothing of the message"
	messageReturned    = "message that no queue takes"
	messageNacked      = "message that a queue refuses"
	endpointAsksPause  = "endpoint asks for a pause"
	endsSpooling       = "process ends while it spools"
	parkedBehind       = "process killed with events parked behind one without an answer"
	tableComes         = "outbox comes"
	tableGoes          = "outbox goes"
	tableAgain         = "outbox made again"
	foreignRecord      = "another relay's record"
)

// fault counts one that takes place. Called with mu held.
func (w *world) fault(name string) {
	if w.counts.Faults == nil {
		w.counts.Faults = map[string]int{}
	}
	w.counts.Faults[name]++
}
