package relay

import (
	"time"

	"github.com/cdc-relay/cdc-relay/internal/store"
)

// Resumed resumes as a request does.
func (r *Relay) Resumed() { r.term.Load().settler.Resume(time.Time{}) }

// Revisit has the lane looked at, as after a decision about a dead letter of it.
func (r *Relay) Revisit(topic, key string) {
	r.term.Load().settler.Revisit(store.Lane{Topic: topic, Key: []byte(key)})
	r.term.Load().settler.Nudge()
}

// RealPostgres is the server that the configuration names; tests change some of what it does.
type RealPostgres = server

// Unchecked lets a configuration through that Validate refuses: the rounds of tests follow each other faster.
func Unchecked() Option { return func(o *options) { o.unchecked = true } }
