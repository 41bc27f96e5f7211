package db

import (
	"cmp"
	"slices"

	"github.com/cdc-relay/cdc-relay/internal/store/internal/record"
)

// EachSource calls do with the events of each source, and with their places in the list. Source is of those that have
// none of their own.
func EachSource(events []record.Sighting, source int32, do func(int32, []record.Sighting, []int) error) error {
	places := make([]int, len(events))
	for i := range places {
		places[i] = i
	}
	slices.SortStableFunc(places, func(a, b int) int { return cmp.Compare(events[a].Source, events[b].Source) })
	for len(places) > 0 {
		own, n := events[places[0]].Source, 0
		var some []record.Sighting
		for ; n < len(places) && events[places[n]].Source == own; n++ {
			some = append(some, events[places[n]])
		}
		if err := do(cmp.Or(own, source), some, places[:n]); err != nil {
			return err
		}
		places = places[n:]
	}
	return nil
}
