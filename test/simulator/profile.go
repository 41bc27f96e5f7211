package simulator

import (
	"time"

	"github.com/cdc-relay/cdc-relay/config"
)

// profile describes a seed's run. Most runs have few kinds of trouble: with all of them at once none would get
// far.
type profile struct {
	kind                     brokerKind
	topics, partitions, keys int
	transactions             int           // of the writer
	older                    int           // of them, committed before the relay starts
	largest                  int           // rows of one transaction
	length                   time.Duration // of the script, after which all trouble ends
	keyless, aborts          float64
	slowCommit               float64 // committed, and visible later (synchronous replication)
	deletes                  bool    // the application deletes rows at any time
	deletesSpooled           bool    // those that are spooled: they are not lost with the slot
	endsSpooling             int     // a process is killed or frozen at the call that so many spooled rows begin with
	longOutage               bool    // the brokers are away for seconds
	parksBehind              bool    // one is killed when it has parked an event behind one that is on its way
	filler                   int     // bytes of each payload
	emptyTransactions        bool    // are sent, as servers before 15 do

	sqlSlow, sqlFails, sqlLost float64 // calls that take long, fail, succeed without an answer
	streamCuts                 int     // replication connections that break
	statusLost                 float64 // statuses that are on their way when it breaks
	serverCrashes              int
	slotLost                   int // the slot is dropped or invalidated

	lives     int // processes that meet an end; those after them live
	freezes   bool
	stops     bool
	kills     bool
	standby   bool    // two processes from the start
	lingering float64 // deaths that the server notices late

	permanent, transient, unmappable float64 // events that are refused
	named                            bool    // the broker names the guilty records
	unknown, notWritten, slowAnswer  float64 // of requests
	lateAppend                       float64 // of requests that were cut off
	missingTopic, topicTrouble       bool
	deletedTopic                     bool // a topic that has records is
	partitionTrouble, clusterDown    bool
	tailFails                        float64
	foreign                          bool // another relay's records are in the topics, with the same ids

	drift           bool // the publication loses the table for a while
	longTransaction bool // one runs for more than a minute, and is committed in the meantime

	dropped    bool          // the publication, for a while
	unreadable bool          // a transaction, until a person has repaired that
	broken     time.Duration // for so long
	unread     float64       // of streams that the server ends, before the end of all trouble
	slowStarts bool          // a start takes longer than a standby needs to see that the slot is free

	people   bool // ask for things
	requests int  // at any time
	losses   int  // of records that topics had, and that someone asks for once more

	secondTable bool // at last the table is made again, with the same ids, and relayed under another slot's name

	sources int  // outboxes, with one slot
	comes   bool // another one, during the run
	goes    bool // one of them
	again   bool // it is made again

	config config.Config
}

// choose draws the profile.
func choose(seed uint64) profile {
	d := newDice(seed, aboutProfile)
	p := profile{
		topics: d.between(1, 3), partitions: d.between(1, 3), keys: d.between(1, 6),
		transactions: d.between(3, 18), largest: one(d, 1, 2, 3, 6, 20),
		length:            d.pause(300*time.Millisecond, 6*time.Second),
		emptyTransactions: d.chance(0.3),
	}
	sometimes := func(chance float64, values ...float64) float64 {
		v := one(d, values...)
		if !d.chance(chance) {
			return 0
		}
		return v
	}
	p.older = d.below(p.transactions) * d.below(2)
	p.keyless, p.aborts = sometimes(0.3, 0.1, 0.5), sometimes(0.4, 0.1, 0.4)
	p.slowCommit = sometimes(0.3, 0.1, 0.5)
	p.sqlSlow, p.sqlFails, p.sqlLost = sometimes(0.5, 0.05, 0.3), sometimes(0.35, 0.02, 0.15), sometimes(0.35, 0.02, 0.1)
	p.streamCuts = d.between(1, 4) * d.below(2)
	p.statusLost = sometimes(0.5, 0.1, 0.5)
	p.serverCrashes = d.between(1, 2) * one(d, 0, 0, 0, 1)
	p.lives, p.lingering = d.between(1, 4)*one(d, 0, 1, 1), sometimes(0.3, 0.3, 1)
	p.kills, p.stops, p.freezes, p.standby = d.chance(0.8), d.chance(0.4), d.chance(0.2), d.chance(0.15)
	p.permanent, p.transient, p.unmappable = sometimes(0.3, 0.02, 0.1), sometimes(0.5, 0.05, 0.2), sometimes(0.1, 0.05)
	p.named = d.chance(0.5)
	p.unknown, p.notWritten, p.slowAnswer = sometimes(0.4, 0.05, 0.3), sometimes(0.3, 0.05, 0.3), sometimes(0.3, 0.05, 0.3)
	p.lateAppend = sometimes(0.4, 0.2, 0.6)
	p.missingTopic, p.topicTrouble = d.chance(0.15), d.chance(0.15)
	p.partitionTrouble, p.clusterDown = d.chance(0.2), d.chance(0.15)
	p.tailFails, p.foreign = sometimes(0.15, 0.3), d.chance(0.2)
	if p.slotLost = one(d, 0, 0, 0, 0, 0, 1); p.slotLost == 0 {
		p.deletes = d.chance(0.2)
	}
	p.drift, p.longTransaction = d.chance(0.12), d.chance(0.01)
	p.drift = p.drift || p.longTransaction
	p.secondTable = d.chance(0.05)
	p.config = configure(d)
	p.config.Postgres.AllowSecondSlot = p.secondTable // which someone has to want
	p.requests = d.between(1, 4) * one(d, 0, 0, 1)
	if about := newDice(seed, aboutProfile, aboutLosses); about.chance(0.07) {
		p.losses = about.between(1, 3)
	}
	p.deletedTopic = p.losses == 0 && !p.secondTable && newDice(seed, aboutProfile, aboutDeletion).chance(0.12)
	p.people = p.requests+p.losses > 0
	p.oftenDead(d)
	if !p.people { // who would have to end the flood
		p.config.DLQ.Breaker.Count = 100_000_000 // the most that is allowed: never
	}
	p.ends(newDice(seed, aboutProfile, aboutEnds))
	p.spools(newDice(seed, aboutProfile, aboutSpool))
	p.config.LatencyTarget = config.Duration(one(newDice(seed, aboutProfile, aboutLatency), 0, 0,
		10*time.Millisecond, 100*time.Millisecond))
	if p.deletes { // a row that is deleted before the table is read, or read again, is the application's business
		p.older, p.drift, p.longTransaction = 0, false, false
	}
	return p
}

// oftenDead draws, for a part of the runs, what is only of interest with dead letters, and more of these.
func (p *profile) oftenDead(d *dice) {
	if !d.chance(0.3) {
		return
	}
	c := &p.config
	p.people = true
	c.Retry.OnDead = one(d, config.OnDeadContinue, config.OnDeadHold)
	c.DLQ.Topic = one(d, "", deadTopic)
	if d.chance(0.4) {
		c.DLQ.Breaker = config.Breaker{CountInvalid: true, Count: d.below(3),
			Window: config.Duration(one(d, 2*time.Second, time.Hour))}
	}
	p.permanent, p.unmappable = one(d, 0.05, 0.2), one(d, 0, 0.05)
	if c.Outbox.AfterPublish != config.AfterPublishDelete || d.chance(0.5) {
		c.Outbox.Retention = config.Duration(one(d, 0, 300*time.Millisecond))
	}
}

// deadTopic gets copies of dead letters.
const deadTopic = "dead.letters"

// configure draws the relay's configuration.
func configure(d *dice) config.Config {
	c := config.Default()
	c.Outbox.Columns.Headers = "headers"
	c.Outbox.AfterPublish = one(d, config.AfterPublishMark, config.AfterPublishKeep, config.AfterPublishDelete)
	c.Postgres.StatusInterval = config.Duration(500 * time.Millisecond)
	c.Postgres.WALSenderTimeout = config.Duration(3 * time.Second)
	c.Kafka.PartitionPatience = config.Duration(time.Second)
	c.Retry.MaxAttempts = d.between(1, 4)
	c.Retry.MaxBackoff = config.Duration(time.Second)
	c.Limits.InFlightEvents = one(d, 10, 40, 50_000)
	c.Limits.MaxUnrecorded = one(d, 3, 10, 10_000)
	c.Limits.ParkedEvents = one(d, 8, 200_000, 200_000)
	c.Drift.Interval = config.Duration(5 * time.Second)
	c.Reconcile.Interval = config.Duration(one(d, time.Second, time.Second, time.Minute))
	c.ShutdownGrace = config.Duration(one(d, 300*time.Millisecond, 2*time.Second))
	return c
}
