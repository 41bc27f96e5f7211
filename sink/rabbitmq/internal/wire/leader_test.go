package wire

import (
	"errors"
	"testing"
)

// Breaks it catches: a replica's address taken for the leader's; a stream that is not there taken for one without a
// leader.
func TestLeaderIsTheNodeThatTheStreamNames(t *testing.T) {
	answer := func(code, leader byte) []byte {
		return frameOf(metadata|responseBit, 0, 0, 0, 1,
			0, 0, 0, 2, 0, 7, 0, 1, 'a', 0, 0, 0x15, 0xb0, 0, 9, 0, 1, 'b', 0, 0, 0x15, 0xb1, // nodes
			0, 0, 0, 1, 0, 1, 's', 0, code, 0, leader, 0, 0, 0, 1, 0, 7) // streams
	}
	if address, err := answering(answer(codeOK, 9)).Leader("s"); err != nil || address != "b:5553" {
		t.Errorf("got %q, %v; want b:5553", address, err)
	}
	if _, err := answering(answer(2, 9)).Leader("s"); !errors.Is(err, NoStream) {
		t.Errorf("got %v, want %v", err, NoStream)
	}
	if address, err := answering(answer(codeOK, 3)).Leader("s"); address != "" || err != nil {
		t.Errorf("a leader that is not listed: got %q, %v", address, err)
	}
}
