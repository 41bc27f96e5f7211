package recovery

import (
	"strconv"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// Origins tells records of ours from others, by what their x-outbox-source says. The timeline does not matter for that:
// a promotion changes it.
type Origins struct {
	present struct{ system, timeline string }
	sources map[numbered]int32
}

// numbered is a source's number in a system.
type numbered struct{ system, number string }

// NewOrigins returns the origins of records that are sent by a system on a timeline.
func NewOrigins(system string, timeline int32) Origins {
	o := Origins{sources: map[numbered]int32{}}
	o.present.system, o.present.timeline = system, strconv.Itoa(int(timeline))
	return o
}

// Add adds a source by the number in its records' x-outbox-source, and the systems that it lived on before it was
// adopted by the present one. Of is the [outbox.Event.Source] of its events.
func (o Origins) Add(of, number int32, former []string) {
	n := strconv.Itoa(int(number))
	o.sources[numbered{o.present.system, n}] = of
	for _, system := range former {
		o.sources[numbered{system, n}] = of
	}
}

// Ours reports whether a record with the header is of one of the sources, or of another that has reports to be one of
// the present system's by now.
func (o Origins) Ours(header string, has func(number int32) bool) bool {
	system, _, number, ok := outbox.CutSource(header)
	if !ok {
		return false
	}
	if _, ours := o.sources[numbered{system, number}]; ours {
		return true
	}
	n, err := strconv.ParseInt(number, 10, 32)
	return err == nil && system == o.present.system && has(int32(n))
}

// of returns the source of a record by its header, and whether it was sent on the present system and timeline.
func (o Origins) of(header string) (source int32, now, ours bool) {
	system, timeline, number, ok := outbox.CutSource(header)
	if !ok {
		return 0, false, false
	}
	source, ours = o.sources[numbered{system, number}]
	return source, system == o.present.system && timeline == o.present.timeline, ours
}
