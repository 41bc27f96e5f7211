package simulator

// The mutants that the fakes play: each is a rule of package store that is broken on purpose, so that a run can show
// that it would be noticed. Those of the relay's own code are patches, see mutants.sh.
const (
	queueByArrival    = "queue-by-arrival"       // a parked lane is read in the order in which it was parked
	parkedTwice       = "parked-set-counts"      // an event that is parked again takes a second place
	deletedIsDone     = "deleted-is-done"        // parking an event whose row was deleted does nothing
	notFoundIsDeleted = "not-found-is-done"      // a look-up takes an event whose row is not in the table for done
	noFence           = "epoch-not-checked"      // writes do not ask whose epoch it is
	noReadFence       = "reads-not-fenced"       // nor does what says which events are to be sent
	deadForgotten     = "dead-not-looked-up"     // look-ups do not know of dead letters
	noSource          = "journal-without-source" // the journal is keyed by the id alone
	oldPlaces         = "parked-keep-old-places" // a catch-up does not move parked events into its era
	anyLease          = "epoch-before-lease"     // a take-over does not ask who holds the slot
	halfKept          = "half-kept"              // what was spooled of a transaction stays, though it comes again
	spoolUnfenced     = "spool-unfenced"         // a relay that has lost the slot spools
	followersGo       = "followers-go"           // what is replayed behind one that died again is published
)

// Mutants are the names of the above.
var Mutants = []string{queueByArrival, parkedTwice, deletedIsDone, notFoundIsDeleted, noFence, noReadFence,
	deadForgotten, noSource, oldPlaces, anyLease, halfKept, spoolUnfenced, followersGo}

// provoke makes what a mutant is about frequent, where the seeds come to it once in tens of thousands of runs.
func (p *profile) provoke(mutant string) {
	if mutant == oldPlaces { // events are parked while a slot is lost
		p.slotLost, p.topicTrouble, p.deletes = max(p.slotLost, 1), true, false
	}
}
