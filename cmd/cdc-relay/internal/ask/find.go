package ask

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"time"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/store"
)

// findPatience bounds how long a relay may take to say what it has in flight.
const findPatience = 5 * time.Second

// Whereabouts are where events are.
type Whereabouts struct {
	Items []store.Found `json:"items"`
	// NotAsked says why no relay was asked what it has in flight; such events are told as waiting.
	NotAsked string `json:"relay_not_asked,omitempty"`
}

// Find asks the relay what it has in flight of the events, then the tables.
func (o Outbox) Find(ctx context.Context, st *store.Store, cfg config.Config,
	ids []string) (w Whereabouts, err error) {
	inFlight, err := o.transit(ctx, cfg, ids)
	if err != nil {
		w.NotAsked = err.Error()
	}
	w.Items, err = st.Locate(ctx, ids, inFlight)
	return w, err
}

// transit asks the relay at http.listen which of the events are in flight.
func (o Outbox) transit(ctx context.Context, cfg config.Config, ids []string) (map[string]store.FoundInTransit, error) {
	ctx, cancel := context.WithTimeout(ctx, findPatience)
	defer cancel()
	inFlight := map[string]store.FoundInTransit{}
	for len(ids) > 0 {
		some := ids[:min(len(ids), idsAtOnce)]
		ids = ids[len(some):]
		question := url.Values{"id": some}
		if o.Of != "" {
			question.Set("outbox", o.Of)
		}
		body, err := get(ctx, Reachable(cfg.HTTP.Listen), cfg.HTTP.TokenFile, "/api/v1/find?"+question.Encode())
		if err != nil {
			return inFlight, err
		}
		var page store.Page[store.Found]
		if err := json.Unmarshal(body, &page); err != nil {
			return inFlight, fmt.Errorf("read the relay's answer: %w", err)
		}
		for _, f := range page.Items {
			if f.InFlight != nil {
				inFlight[f.ID] = *f.InFlight
			}
		}
	}
	return inFlight, nil
}

// idsAtOnce keeps a question shorter than what a server takes as an address.
const idsAtOnce = 50
