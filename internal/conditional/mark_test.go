package conditional_test

import (
	"encoding/hex"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/conditional"
)

// A job's note holds the mark that an earlier release made. Breaks it catches: another form of the mark, after which a
// job of before is added again. Seen to fail with the lengths left out, and with none taken for an empty part.
func TestMarksStayWhatTheyWere(t *testing.T) {
	digest := conditional.NewDigest()
	digest.Add(nil)
	digest.Add([]byte{})
	digest.AddHeader("id", []byte("7"))
	digest.AddHeader("x-outbox-source", []byte("12/3/abc"))
	digest.AddHeader("x-outbox-epoch", []byte("5"))
	mark := digest.Mark()
	if got, want := hex.EncodeToString(mark[:]), "8c702ff28f99f028223fa39ded5762d8"; got != want {
		t.Errorf("mark: got %s, want %s", got, want)
	}
}

// Break it catches: what other writers have written taken for a relay's, and kept for a record that never comes. Seen
// to fail with a mark for any content.
func TestWhatNoRelayWroteHasNoMark(t *testing.T) {
	digest := conditional.NewDigest()
	digest.AddHeader("id", []byte("7"))
	digest.Add([]byte("value"))
	if got := digest.Mark(); got != (conditional.Mark{}) {
		t.Errorf("mark without a source: got %x, want none", got)
	}
}
