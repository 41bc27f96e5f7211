package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/store"
)

// find answers where events are: those that are named, or those of an aggregate or of a message key.
func (l lists) find(w http.ResponseWriter, req *http.Request) {
	q := query{values: req.URL.Query()}
	aggregate, key, since, limit := q.take("aggregate"), q.take("key"), q.age("since"), q.limit()
	q.known = append(q.known, "id")
	ids := q.values["id"]
	kind, id, whole := strings.Cut(aggregate, "/")
	given := 0
	for _, name := range []string{"id", "aggregate", "key"} {
		if q.values.Has(name) {
			given++
		}
	}
	switch {
	case given != 1:
		q.errs = append(q.errs, errors.New("give one of id, once or more, aggregate=TYPE/ID, and key"))
	case len(ids) > largestPage:
		q.errs = append(q.errs, fmt.Errorf("id is given %d times; at most %d are allowed", len(ids), largestPage))
	case aggregate != "" && !whole:
		q.errs = append(q.errs, errors.New("aggregate: want TYPE/ID"))
	}
	of := q.take("outbox")
	l.list(w, req, of, q.end(), func(ctx context.Context, s *store.Store) (any, error) {
		var err error
		switch {
		case aggregate != "":
			ids, err = s.OfAggregate(ctx, kind, id, time.Duration(since), limit)
		case q.values.Has("key"):
			ids, err = s.OfKey(ctx, key, time.Duration(since), limit)
		}
		if err != nil {
			return nil, err
		}
		found, err := s.Locate(ctx, ids, l.r.InFlight(s.EventSource(), ids))
		return store.Page[store.Found]{Items: found}, err
	})
}
