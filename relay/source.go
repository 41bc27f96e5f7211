package relay

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/decoder"
	"github.com/cdc-relay/cdc-relay/internal/message"
	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/run/halt"
	"github.com/cdc-relay/cdc-relay/internal/run/outboxes"
	"github.com/cdc-relay/cdc-relay/internal/store"
)

// source holds the encoders and the state of one outbox in a session. The dispatcher owns it, but for again.
type source struct {
	name    string           // schema.table, as outbox.table has it
	state   *store.State     // as it was before the session took over
	router  *message.Encoder // of the stream
	payload decoder.Payload

	again func() *message.Encoder // the settler's, made by its first call: most outboxes have nothing parked or dead
}

// sourceSet is the sources of a session's events.
type sourceSet struct {
	only    *source                           // of events that name none
	adding  sync.Mutex                        // the dispatcher adds to several, and what stores the stream
	several atomic.Pointer[map[int32]*source] // by the number that events carry
}

// of is the source of an event.
func (x *sourceSet) of(e *outbox.Event) *source { return x.numbered(e.Source) }

// numbered is a source by the number that its events carry.
func (x *sourceSet) numbered(number int32) *source {
	if number == 0 {
		return x.only
	}
	if all := x.several.Load(); all != nil {
		return (*all)[number]
	}
	return nil
}

// add adds some of several sources. The map is copied, so many are added at once.
func (x *sourceSet) add(some map[int32]*source) {
	x.adding.Lock()
	defer x.adding.Unlock()
	if known := x.several.Load(); known != nil {
		all := make(map[int32]*source, len(*known)+len(some))
		maps.Copy(all, *known)
		maps.Copy(all, some)
		some = all
	}
	x.several.Store(&some)
}

// openSources makes the sources of the session, and completes the decoder's configuration, which tells their relations
// apart: one that is new is registered by the context.
func (s *session) openSources(working context.Context, table store.Outbox, decoding *decoder.Config) (err error) {
	if s.only, err = s.newSource(table, s.state); err != nil || s.r.outboxes == nil {
		return err
	}
	if err := s.addOutboxes(s.r.outboxes.Known()); err != nil {
		return err
	}
	decoding.Sources = func(r *decoder.Relation) (int32, bool, error) {
		o, err := s.r.outboxes.OfRelation(working, r, s.misfit(r, table.IDType))
		if err == nil && o != nil && s.numbered(o.Source) == nil {
			err = s.addOutboxes([]*outboxes.Outbox{o})
		}
		if err != nil || o == nil {
			return 0, false, err
		}
		return o.Source, true, nil
	}
	return nil
}

// misfit says why rows of the relation cannot become events of one of several outboxes, whose ids have the type.
func (s *session) misfit(r *decoder.Relation, idType string) error {
	if err := decoder.Lacks(s.decoding.Columns, r); err != nil {
		return err
	}
	column := s.r.c.Outbox.Columns.ID
	if has := idTypes[r.TypeOf(column)]; has != "" && has != idType {
		return fmt.Errorf("column %q is of type %s, and ids of the other outboxes are %s", column, has, idType)
	}
	return nil
}

// idTypes are store.Outbox.IDType of columns, by the OIDs of their types (src/include/catalog/pg_type.dat). A domain
// has an OID of its own.
var idTypes = map[uint32]string{2950: "uuid", 20: "bigint", 21: "bigint", 23: "bigint", 25: "text", 1042: "text",
	1043: "text"}

// resume has outboxes caught up with whose rows were left out, and that are right again.
func (s *session) resume(ctx context.Context) error {
	if s.r.outboxes == nil {
		return nil
	}
	some, err := s.r.outboxes.Resume(ctx, s.state)
	if some {
		s.state.Phase, s.state.CatchUpReady = store.CatchUp, false
		s.setTableFirst(true)
	}
	return err
}

// learn makes the sources of rows that are not of the stream: of tables that were found since the session began. What
// was listed of an outbox has changed its state.
func (s *session) learn() error {
	if s.r.outboxes == nil {
		return nil
	}
	var found []*outboxes.Outbox
	for _, o := range s.r.outboxes.Known() {
		if x := s.numbered(o.Source); x != nil {
			x.state = o.Recorded()
		} else {
			found = append(found, o)
		}
	}
	return s.addOutboxes(found)
}

func (s *session) addOutboxes(found []*outboxes.Outbox) error {
	if len(found) == 0 {
		return nil
	}
	some := make(map[int32]*source, len(found))
	for _, o := range found {
		x, err := s.newSource(o.Shape, o.Recorded())
		if err != nil {
			return err
		}
		some[o.Source] = x
	}
	s.add(some)
	return nil
}

// newSource makes what the session needs for the events of a table.
func (s *session) newSource(table store.Outbox, state *store.State) (*source, error) {
	x := &source{name: config.JoinTable(table.Schema, table.Name), state: state,
		payload: decoder.NewPayload(table.PayloadType)}
	var err error
	x.router, err = s.encoder(x, table.PayloadType)
	began := *x // the settler may not read what the dispatcher changes
	x.again = sync.OnceValue(func() *message.Encoder {
		again, err := s.encoder(&began, table.PayloadType)
		if err != nil { // the same made the router
			panic(fmt.Sprintf("relay: make a second encoder for %s: %v", began.name, err))
		}
		return again
	})
	return x, err
}

// encoder makes the encoder of events whose payload column has the type.
func (s *session) encoder(of *source, payloadType string) (*message.Encoder, error) {
	r, c := s.r, s.r.c
	if r.outboxes != nil {
		c.Outbox.Table = of.name
	}
	hooks := message.Hooks{Shadowed: r.meter.Stream.Shadowed.Inc, Misfit: r.misfit, Schemas: r.registry,
		Names: s.term.names,
		Panicked: func(id []byte, value any, stack []byte) {
			r.log.Error().Bytes("id", id).Str("panic", fmt.Sprint(value)).Bytes("stack", stack).
				Msg("making an event's message failed by a mistake in the program; the event becomes a dead letter")
		}}
	x, err := message.New(c, message.Columns(c), payloadType, hooks)
	if err != nil {
		return nil, &halt.Error{Code: halt.Setup, Reason: err.Error(), Risk: halt.RiskWAL, Remedy: "correct the template",
			Cause: err}
	}
	x.Begin(outbox.Source(s.grant.System.ID, s.grant.System.Timeline, of.state.Source), s.epoch)
	x.At(time.Now())
	return x, nil
}

// retype has the rows that follow in the stream made into messages by the type of their payload, which the stream has
// announced: that of their time, not of the catalog.
func (s *session) retype(x *source, oid uint32) error {
	changed, err := x.payload.Becomes(oid)
	if !changed {
		return err
	}
	router, err := s.encoder(x, x.payload.Type)
	if err == nil {
		x.router = router
	}
	return err
}
