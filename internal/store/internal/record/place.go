package record

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// Place is the choice of a filter's Position: one event, or with Whole all of a transaction.
type Place struct {
	outbox.Position
	Whole bool // any index
}

// ParsePlace reads a position as the header x-outbox-position has it, or the commit LSN of a transaction alone.
func ParsePlace(text string) (p Place, err error) {
	parts := strings.Split(text, "/")
	switch {
	case len(parts) == 3 && parts[0] == "table":
		p.Table = true
		if p.Epoch, err = strconv.ParseInt(parts[1], 10, 64); err == nil {
			p.Order, err = strconv.ParseUint(parts[2], 10, 63)
		}
	case len(parts) == 2 || len(parts) == 3:
		var lsn outbox.LSN
		if lsn, err = outbox.ParseLSN(parts[0] + "/" + parts[1]); err != nil {
			break
		}
		if p.Order, p.Whole = uint64(lsn), len(parts) == 2; !p.Whole {
			var index uint64
			index, err = strconv.ParseUint(parts[2], 10, 32)
			p.Index = uint32(index)
		}
	default:
		err = ErrFilter
	}
	if err != nil {
		return Place{}, fmt.Errorf("%w: position: found %.60q; allowed: 0/16B3748/2 as in x-outbox-position, 0/16B3748 for "+
			"all of a transaction, table/1/42", ErrFilter, text)
	}
	return p, nil
}

// OfAggregate is the type and the id that a filter's Aggregate names.
func (f Filter) OfAggregate() (kind, id string, err error) {
	kind, id, whole := strings.Cut(f.Aggregate, "/")
	if !whole || id == "" {
		return "", "", fmt.Errorf("%w: aggregate: found %.100q; allowed: TYPE/ID, or /ID where there is no type", ErrFilter,
			f.Aggregate)
	}
	return kind, id, nil
}
