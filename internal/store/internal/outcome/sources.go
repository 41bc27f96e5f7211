package outcome

import "github.com/cdc-relay/cdc-relay/internal/store/internal/db"

// bySource is [db.EachSource] for those who need no places.
func bySource[T any](items []T, source int32, of func(*T) int32, do func(source int32, items []T) error) error {
	return db.EachSource(items, source, of, func(source int32, items []T, _ []int) error { return do(source, items) })
}
