package outcome

import (
	"cmp"
	"slices"
)

// bySource calls do with the items of each source, which keep their order. Source is of items that have none of their
// own.
func bySource[T any](items []T, source int32, of func(*T) int32, do func(source int32, items []T) error) error {
	if len(items) == 0 {
		return nil
	}
	compare := func(a, b T) int { return cmp.Compare(of(&a), of(&b)) }
	if !slices.IsSortedFunc(items, compare) {
		items = slices.Clone(items)
		slices.SortStableFunc(items, compare)
	}
	for len(items) > 0 {
		own, n := of(&items[0]), 1
		for n < len(items) && of(&items[n]) == own {
			n++
		}
		if err := do(cmp.Or(own, source), items[:n]); err != nil {
			return err
		}
		items = items[n:]
	}
	return nil
}
