package wire

import (
	"fmt"
	"slices"
	"testing"
)

// mixed is a message of another writer: annotations, properties with numbers, a map with a short count.
var mixed = []byte{
	0, 0x53, 0x72, 0xc1, 1, 0, // message-annotations, empty
	0, 0x53, 0x74, 0xc1, 19, 6,
	0xa1, 1, 'a', 0x55, 7, // a number
	0xa1, 1, 'b', 0xa1, 1, 'x',
	0xa1, 1, 'c', 0xa0, 2, 'y', 'z',
	0, 0x53, 0x75, 0xa0, 1, '!',
}

// Breaks it catches: a value that is taken for another one, or a message cut anywhere that ends the process. Seen to
// fail with values of one byte taken for none, and without the look at the length.
func TestPickTakesTextAndBytes(t *testing.T) {
	pick := func(message []byte) (list []string, err error) {
		err = Pick(message, func(name, value []byte) { list = append(list, fmt.Sprintf("%s=%s", name, value)) })
		return list, err
	}
	got, err := pick(mixed)
	if want := []string{"b=x", "c=yz"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
	for n := range mixed {
		if got, _ := pick(mixed[:n]); len(got) > 2 {
			t.Errorf("the first %d bytes: got %q", n, got)
		}
	}
}

// Breaks it catches: another section taken for the data, or none taken for empty data. Seen to fail with the properties
// taken for it.
func TestBodyIsTheFirstData(t *testing.T) {
	if got, err := Body(mixed); err != nil || string(got) != "!" {
		t.Errorf("got %q, %v", got, err)
	}
	if got, err := Body([]byte{0, 0x53, 0x75, 0xa0, 0}); err != nil || got == nil || len(got) > 0 {
		t.Errorf("empty: got %v, %v", got, err)
	}
	if got, err := Body(mixed[:6]); err != nil || got != nil {
		t.Errorf("none: got %q, %v", got, err)
	}
	if _, err := Body(mixed[:len(mixed)-1]); err == nil {
		t.Error("a message that ends too early: got no error")
	}
}

// Breaks it catches: a frame of a server gone wrong that ends the process, or a chunk whose entries are read past its
// end. Seen to fail without the look at what is left.
func TestBrokenChunksAreErrors(t *testing.T) {
	whole := slices.Concat([]byte{0, 0x50, 0, 0, 1, 0, 0, 0, 1}, make([]byte, 8+8), []byte{0, 0, 0, 0, 0, 0, 0, 40},
		make([]byte, 4), []byte{0, 0, 0, 6}, make([]byte, 8), []byte{0, 0, 0, 2, 'h', 'i'})
	read := func(body []byte) (found string, err error) {
		c, err := chunkOf(frame{deliver, body})
		if err == nil {
			err = c.Each(func(offset int64, message []byte) error {
				found = fmt.Sprintf("%d %s", offset, message)
				return nil
			})
		}
		return found, err
	}
	if got, err := read(whole); err != nil || got != "40 hi" {
		t.Errorf("got %q, %v", got, err)
	}
	for n := range whole {
		if got, err := read(whole[:n]); err == nil {
			t.Errorf("the first %d bytes: got %q, want an error", n, got)
		}
	}
}
