package settle

import (
	"time"

	"github.com/rs/zerolog"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/run/halt"
	"github.com/cdc-relay/cdc-relay/sink"
)

// no one is a host without a session, and a meter that counts nothing.
type nobody struct{}

func (nobody) Owner() Session                                        { return nil }
func (nobody) Streaming() Session                                    { return nil }
func (nobody) Stopping() bool                                        { return false }
func (nobody) CannotRecord(string, error) bool                       { return false }
func (nobody) Recorded(string)                                       {}
func (nobody) Died(string, *sink.Reason)                             {}
func (nobody) Trace([]*sink.Record)                                  {}
func (nobody) Trip(*halt.Error)                                      {}
func (nobody) Lift(*halt.Error)                                      {}
func (nobody) AnsweredSince(time.Time) bool                          { return true }
func (nobody) BeginResults()                                         {}
func (nobody) Acknowledged(*sink.Record, time.Duration, int64, bool) {}
func (nobody) EndResults()                                           {}
func (nobody) Journaled(int, time.Duration)                          {}
func (nobody) Parked(int)                                            {}
func (nobody) Retried(int)                                           {}
func (nobody) Uncopied()                                             {}
func (nobody) Works()                                                {}
func (nobody) Waits()                                                {}

// deaf is no one as a meter: Died means two things.
type deaf struct{ nobody }

func (deaf) Died(outbox.ErrorClass) {}

// settlerOf is a settler on the engine and the tables, whose goroutines the test plays.
func settlerOf(c config.Config, engine *sink.Engine, tables Tables) *Settler {
	return New(Options{
		Config: c, Logger: zerolog.Nop(), Tables: tables, Engine: engine, Host: nobody{}, Meter: deaf{}, Pulse: nobody{},
	})
}
