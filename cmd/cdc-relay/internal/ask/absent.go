package ask

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/internal/store"
)

// absent says of each id that was named, and is not among the n events that are concerned, why it is not.
func (q asking) absent(ctx context.Context, n int64) (whys []string, err error) {
	if n >= int64(len(q.filter.IDs)) {
		return nil, nil
	}
	for _, id := range q.filter.IDs {
		one := q.filter
		one.IDs = []string{id}
		if n, err := q.st.Count(ctx, q.kind, one); err != nil || n > 0 {
			if err != nil {
				return nil, err
			}
			continue
		}
		why, err := q.whyNot(ctx, id)
		if err != nil {
			return nil, err
		}
		whys = append(whys, why)
	}
	return whys, nil
}

func (q asking) whyNot(ctx context.Context, id string) (string, error) {
	const others = "%s does not match the other flags"
	if q.kind == store.RequestRetry {
		sum, err := q.st.ParkedSum(ctx, store.Filter{IDs: []string{id}})
		switch {
		case err != nil:
			return "", err
		case sum.Matching == 0:
			return fmt.Sprintf("no parked event %s", cli.Plain(id)), nil
		case sum.Troubled > 0:
			return fmt.Sprintf("%s waits for its topic or partition %s, which the relay checks all the time", cli.Plain(id),
				strings.Join(sum.Topics, "")), nil
		case sum.Due > 0:
			return fmt.Sprintf("%s is due already", cli.Plain(id)), nil
		case sum.Behind > 0:
			return fmt.Sprintf("%s waits behind another event of its key and has no retry time of its own", cli.Plain(id)), nil
		}
		return fmt.Sprintf(others, cli.Plain(id)), nil
	}
	d, err := q.st.DeadLetter(ctx, id)
	switch {
	case errors.Is(err, store.ErrNoDeadLetter):
		return fmt.Sprintf("no dead letter %s", cli.Plain(id)), nil
	case err != nil:
		return "", err
	case StateOf(&d.DeadLetter) != store.DeadOpen:
		return fmt.Sprintf("%s is %s", cli.Plain(id), StateOf(&d.DeadLetter)), nil
	}
	return fmt.Sprintf(others, cli.Plain(id)), nil
}

// notThere fails a command to which ids were named that it could do nothing about; nil without any.
func notThere(absent []string) error {
	if len(absent) == 0 {
		return nil
	}
	return fmt.Errorf("some of these ids do not apply: %s", strings.Join(absent, "; "))
}

// unconcerned is the JSON answer to an empty request.
type unconcerned struct {
	Concerned int              `json:"concerned"`
	Parked    *store.ParkedSum `json:"parked,omitempty"` // of a retry: what matches, and what it waits for
	Absent    []string         `json:"absent,omitempty"`
}

// nothing says why nothing was asked for.
func (q asking) nothing(ctx context.Context, absent []string) error {
	u := unconcerned{Absent: absent}
	if q.kind == store.RequestRetry {
		sum, err := q.st.ParkedSum(ctx, q.filter)
		if err != nil {
			return err
		}
		u.Parked = &sum
	}
	switch {
	case q.a.JSON:
		if err := q.a.PrintJSON(u); err != nil {
			return err
		}
	case len(absent) > 0: // the error says it
	case u.Parked != nil && u.Parked.Matching > 0:
		cli.Fprintf(q.a.Out, "%d parked events match, but none can be made due: %s; nothing was requested\n",
			u.Parked.Matching, u.Parked.WhyNotDue())
	default:
		cli.Fprintf(q.a.Out, "no %s match; nothing was requested\n", q.what)
	}
	return notThere(absent)
}
