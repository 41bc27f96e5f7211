package db

import (
	"cmp"
	"slices"
)

// EachSource calls do with the items of each source, which keep their order, and with their places in the list. Source
// is of items that have none of their own.
func EachSource[T any](items []T, source int32, of func(*T) int32,
	do func(source int32, items []T, places []int) error) error {
	places := make([]int, len(items))
	for i := range places {
		places[i] = i
	}
	compare := func(a, b int) int { return cmp.Compare(of(&items[a]), of(&items[b])) }
	if !slices.IsSortedFunc(places, compare) {
		slices.SortStableFunc(places, compare)
		sorted := make([]T, len(items))
		for i, place := range places {
			sorted[i] = items[place]
		}
		items = sorted
	}
	for len(items) > 0 {
		own, n := of(&items[0]), 1
		for n < len(items) && of(&items[n]) == own {
			n++
		}
		if err := do(cmp.Or(own, source), items[:n], places[:n]); err != nil {
			return err
		}
		items, places = items[n:], places[n:]
	}
	return nil
}
