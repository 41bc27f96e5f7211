package relay

import "time"

// brokerLogEvery is how often the log repeats that the broker is unavailable, with its newest error.
const brokerLogEvery = time.Minute

// outage tracks what the log has said of the broker's trouble. Only the watch uses it.
type outage struct {
	since  time.Time // zero: the broker is not in trouble
	logged time.Time // when the log said it last
}

// next returns what the log says now, "" for nothing, and for how long the trouble has lasted: once when the broker has
// been away for stalledAfter, each brokerLogEvery after that, and once when all is well. Between the two, which is a
// trouble that began just now, it says nothing.
func (o *outage) next(away, well bool) (message string, lasts time.Duration) {
	now := time.Now()
	switch {
	case away && o.since.IsZero():
		o.since, message = now.Add(-stalledAfter),
			"broker unavailable; its events wait in order, in bounded memory, without spending attempts"
	case away && now.Sub(o.logged) >= brokerLogEvery:
		message = "broker still unavailable"
	case well && !o.since.IsZero():
		message, lasts = "broker recovered", now.Sub(o.since).Round(time.Second)
		*o = outage{}
		return message, lasts
	default:
		return "", 0
	}
	o.logged = now
	return message, now.Sub(o.since).Round(time.Second)
}
