package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/store"
)

// find answers where events are: those that are named, or those of an aggregate.
func (l lists) find(w http.ResponseWriter, req *http.Request) {
	q := query{values: req.URL.Query()}
	aggregate, since, limit := q.take("aggregate"), q.age("since"), q.limit()
	q.known = append(q.known, "id")
	ids := q.values["id"]
	kind, id, whole := strings.Cut(aggregate, "/")
	switch {
	case (len(ids) > 0) == q.values.Has("aggregate"):
		q.errs = append(q.errs, errors.New("give either id, once or more, or aggregate=TYPE/ID"))
	case len(ids) > largestPage:
		q.errs = append(q.errs, fmt.Errorf("id is given %d times; at most %d are looked for at once", len(ids), largestPage))
	case aggregate != "" && !whole:
		q.errs = append(q.errs, errors.New("aggregate: want TYPE/ID"))
	}
	l.list(w, req, q.end(), func(ctx context.Context, s *store.Store) (any, error) {
		if aggregate != "" {
			var err error
			if ids, err = s.OfAggregate(ctx, kind, id, time.Duration(since), limit); err != nil {
				return nil, err
			}
		}
		found, err := s.Locate(ctx, ids, l.r.InFlight(ids))
		return store.Page[store.Found]{Items: found}, err
	})
}
