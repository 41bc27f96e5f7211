package simulator

// Faults are the kinds of trouble that the profile draws, by the names under which [Counts] has how often each took
// place. A test holds that each did.
var Faults = []string{
	aborted, appDeletes, callSlow, deathLingers, kafkaAway, longTransaction, noLeader, partitionTrouble,
	publicationDropped, publicationDrifts, requestSlow, requestNotWritten, rowUnreadable, secondTable, shownLate,
	startSlow, statusLost, tailFails, topicForbidden, topicMissing, foreignRecord,
}

const (
	aborted            = "transaction rolled back"
	appDeletes         = "row deleted by the application"
	callSlow           = "SQL call slow"
	deathLingers       = "death noticed late by the server"
	kafkaAway          = "Kafka away"
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
	foreignRecord      = "another relay's record"
)

// fault counts one that takes place. Called with mu held.
func (w *world) fault(name string) {
	if w.counts.Faults == nil {
		w.counts.Faults = map[string]int{}
	}
	w.counts.Faults[name]++
}
