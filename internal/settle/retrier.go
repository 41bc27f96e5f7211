package settle

import (
	"context"
	"sync"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/store"
)

const (
	dueLanes     = 2000                   // due lanes that are looked for at once, beside those that move already
	retrierPause = 100 * time.Millisecond // between two looks while something is due or retries may not begin yet
	retrierLook  = 5 * time.Second        // between two looks, at most, while anything is parked
	tidyEvery    = 30 * time.Second       // between two looks for lanes that no one would wake

	// portionRows and portionBytes bound what is read of a lane at once, topicBytes what is read of a topic's lanes
	// and has no outcome: retries take no notice of the sink's window. It is per topic, so that one in trouble stops
	// no other.
	portionRows  = 2000
	portionBytes = 1 << 20
	topicBytes   = 4 << 20
	// headsMost and lanesMost bound the lanes that one query reads: those with only the head wanted, and those with
	// all of it.
	headsMost = 500
	lanesMost = 50
)

// retrierWord is the retrier's message to the settler: due lanes, or a lane's next portion, which was asked
// for.
type retrierWord struct {
	due    []store.Lane
	probes []store.Lane // the first event of each is wanted, due or not

	portions []store.Portion
	session  Session // in which they were read
}

// laneAsk is a lane to read from.
type laneAsk struct {
	store.Ask
	head bool // the first event is enough
}

// retrier reads parked events for the settler: it looks for lanes whose time has come, and reads the portions that
// the settler asks for. It decides nothing. No transaction is open while an event is published, and no row is locked:
// the process that holds the slot is the only one that retries.
type retrier struct {
	settler *Settler
	words   chan retrierWord
	wake    chan struct{} // there is something to do

	// Owned by run.
	tidied   time.Time
	troubled bool    // since the last round
	session  Session // of the round

	mu     sync.Mutex // guards what follows
	asked  []laneAsk
	again  []store.Lane // to be looked at, whether due or not
	probes []store.Lane
	soon   bool                // tidy, as soon as retries may begin
	well   map[string]struct{} // topics whose waiting events become due
	next   time.Time           // of the next look for due lanes
	bytes  map[string]int      // by topic: handed in, without an outcome
}

func newRetrier(s *Settler) *retrier {
	return &retrier{
		settler: s, words: make(chan retrierWord), wake: make(chan struct{}, 1), tidied: time.Now(),
		well: map[string]struct{}{}, bytes: map[string]int{},
	}
}

// ask has the lane's next portion read.
func (t *retrier) ask(lane laneAsk) {
	t.mu.Lock()
	t.asked = append(t.asked, lane)
	t.mu.Unlock()
	t.nudge()
}

// revisit has lanes looked at, and given back to the live path if nothing of them is parked any more.
func (t *retrier) revisit(lanes ...store.Lane) {
	t.mu.Lock()
	t.again = append(t.again, lanes...)
	t.mu.Unlock()
}

// isWell has what waits for the topic made due.
func (t *retrier) isWell(topic string) {
	t.mu.Lock()
	t.well[topic] = struct{}{}
	t.mu.Unlock()
	t.nudge()
}

// tidySoon has lanes woken that nothing else would wake. It looks at all that is parked, so a start does not wait for
// it.
func (t *retrier) tidySoon() {
	t.mu.Lock()
	t.soon = true
	t.mu.Unlock()
}

// mayTidy reports that it is time to tidy.
func (t *retrier) mayTidy() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	soon := t.soon
	t.soon = false
	return soon || time.Since(t.tidied) > tidyEvery
}

// dueIn reports that an event will be due then.
func (t *retrier) dueIn(d time.Duration) {
	t.mu.Lock()
	at := time.Now().Add(d)
	sooner := at.Before(t.next)
	if sooner {
		t.next = at
	}
	t.mu.Unlock()
	if sooner {
		t.nudge()
	}
}

// weigh counts what was handed in of a topic, or with a negative number what has an outcome.
func (t *retrier) weigh(topic string, bytes int) {
	t.mu.Lock()
	if t.bytes[topic] += bytes; t.bytes[topic] <= 0 {
		delete(t.bytes, topic)
	}
	waits := bytes < 0 && len(t.asked) > 0
	t.mu.Unlock()
	if waits {
		t.nudge()
	}
}

func (t *retrier) nudge() { signal(t.wake) }

func (t *retrier) run(ctx context.Context) {
	for {
		session := t.settler.mayRetry()
		wait := t.untilNext()
		if session == nil {
			wait = retrierPause
		}
		select {
		case <-t.wake:
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
		if session = t.settler.mayRetry(); session == nil {
			t.settler.host.Recorded("retry") // it asks nothing at present: what it could not ask is past
			continue
		}
		t.session = session
		if !t.makeDue(ctx) || !t.lookAgain(ctx) || !t.answer(ctx, session) {
			return
		}
		if t.mayTidy() {
			t.tidied = time.Now()
			t.tidy(ctx)
		}
		if t.untilNext() == 0 && !t.look(ctx) {
			return
		}
		if !t.troubled {
			t.settler.host.Recorded("retry")
		}
		t.troubled = false
	}
}

func (t *retrier) untilNext() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.soon {
		return 0
	}
	return min(max(time.Until(t.next), 0), retrierLook)
}

// makeDue wakes what waits for topics that are well.
func (t *retrier) makeDue(ctx context.Context) (more bool) {
	t.mu.Lock()
	topics := make([]string, 0, len(t.well))
	for topic := range t.well {
		topics = append(topics, topic)
	}
	clear(t.well)
	t.mu.Unlock()
	for _, topic := range topics {
		if t.settler.troubled(topic) {
			continue // again: the end of that makes them due
		}
		switch more, err := t.settler.tables.MakeDue(ctx, topic); {
		case err != nil:
			t.failed(ctx, err) // the next tidying makes them due
		case more: // after what the settler has asked for since
			t.isWell(topic)
		}
		t.dueIn(0)
	}
	return ctx.Err() == nil
}

// lookAgain has lanes looked at that may be empty.
func (t *retrier) lookAgain(ctx context.Context) (more bool) {
	t.mu.Lock()
	word := retrierWord{due: t.again, probes: t.probes}
	t.again, t.probes = nil, nil
	t.mu.Unlock()
	return len(word.due)+len(word.probes) == 0 || t.tell(ctx, word)
}

// answer reads what the settler asked for, many lanes at once. Lanes of a topic that has enough out wait.
func (t *retrier) answer(ctx context.Context, session Session) (more bool) {
	t.mu.Lock()
	asked := t.asked
	t.asked = nil
	var groups [][]laneAsk
	open := map[bool]int{} // the group that takes more, by whether heads are asked for; from 1
	for _, a := range asked {
		switch most, last := lanesMost, open[a.head]; {
		case t.bytes[a.Lane.Topic] >= topicBytes:
			t.asked = append(t.asked, a)
		case a.Lane.Key == nil:
			groups = append(groups, []laneAsk{a})
		default:
			if a.head {
				most = headsMost
			}
			if last == 0 || len(groups[last-1]) >= most {
				groups = append(groups, nil)
				last = len(groups)
				open[a.head] = last
			}
			groups[last-1] = append(groups[last-1], a)
		}
	}
	t.mu.Unlock()
	for i, group := range groups {
		asks := make([]store.Ask, len(group))
		for j, a := range group {
			asks[j] = a.Ask
		}
		limit := max(1, portionRows/len(asks))
		if group[0].head {
			limit = 1
		}
		var portions []store.Portion
		err := session.Announce(ctx, topicsOf(asks))
		if err == nil {
			portions, err = t.settler.tables.Portions(ctx, asks, limit, portionBytes)
		}
		if err != nil {
			t.mu.Lock()
			for _, rest := range groups[i:] {
				t.asked = append(t.asked, rest...)
			}
			t.mu.Unlock()
			return t.failed(ctx, err)
		}
		if len(portions) < len(group) { // they had more bytes than are read at once
			t.mu.Lock()
			t.asked = append(t.asked, group[len(portions):]...)
			t.mu.Unlock()
			t.nudge()
		}
		if !t.tell(ctx, retrierWord{portions: portions, session: session}) {
			return false
		}
	}
	return true
}

func topicsOf(asks []store.Ask) []string {
	topics := make([]string, len(asks))
	for i, a := range asks {
		topics[i] = a.Lane.Topic
	}
	return topics
}

// look tells the settler which lanes are due.
func (t *retrier) look(ctx context.Context) (more bool) {
	t.mu.Lock()
	t.next = time.Now().Add(retrierLook)
	t.mu.Unlock()
	if t.settler.parked.Load() <= 0 {
		return true
	}
	lanes, next, err := t.settler.tables.DueLanes(ctx, dueLanes+int(t.settler.moving.Load()), t.settler.TroubledTopics())
	if err != nil {
		t.dueIn(time.Second)
		return t.failed(ctx, err)
	}
	switch {
	case len(lanes) > 0: // there may be more
		t.dueIn(retrierPause)
	case next >= 0:
		t.dueIn(next)
	}
	return len(lanes) == 0 || t.tell(ctx, retrierWord{due: lanes})
}

func (t *retrier) tell(ctx context.Context, word retrierWord) bool {
	select {
	case t.words <- word:
		return true
	case <-ctx.Done():
		return false
	}
}

// tidy wakes lanes that nothing else would wake: their head has no time, or waits for a topic that is well. It also
// counts the parked events again: what this process knows is off after a commit whose answer was lost.
func (t *retrier) tidy(ctx context.Context) {
	n, err := t.settler.tables.CountParked(ctx)
	if err == nil {
		t.settler.parked.Store(n)
	}
	if err == nil && n > 0 {
		var waiting []store.WaitingTopic
		waiting, err = t.settler.tables.WaitingTopics(ctx)
		for _, w := range waiting {
			if !t.settler.troubled(w.Topic) {
				t.isWell(w.Topic)
			}
		}
		if err == nil {
			err = t.settler.tables.WakeHeads(ctx)
		}
	}
	if err != nil {
		t.failed(ctx, err)
		return
	}
	t.dueIn(0)
}

// failed notes that Postgres did not answer; false: the context has ended.
func (t *retrier) failed(ctx context.Context, err error) (more bool) {
	if ctx.Err() != nil {
		return false
	}
	t.troubled = true
	heed(t.session, err)
	if t.settler.host.CannotRecord("retry", err) {
		t.settler.log.Warn().Err(err).Msg("cannot read parked events; they stay parked")
	}
	select {
	case <-time.After(retrierPause):
		return true
	case <-ctx.Done():
		return false
	}
}

// mayRetry is the session in which parked events may be retried, nil when they may not: this process must hold the
// slot, the redelivery after a start must be over, and what came in its course and was given back by the sink must be
// parked. Before that, an event that is not parked yet could be overtaken by one behind it that is.
func (s *Settler) mayRetry() Session {
	session := s.host.Streaming()
	if session == nil {
		return nil
	}
	if passed := session.Passed(); passed == 0 || s.parkedUpTo.Load() < passed-1 {
		return nil
	}
	return session
}
