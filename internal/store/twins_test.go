package store_test

import (
	"encoding/hex"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// twins are two keys of one MD5 hash, a published collision (M. Stevens, 2012).
func twins(t *testing.T) (a, b []byte) {
	t.Helper()
	a, err := hex.DecodeString("4dc968ff0ee35c209572d4777b721587d36fa7b21bdc56b74a3dc0783e7b9518" +
		"afbfa200a8284bf36e8e4b55b35f427593d849676da0d1555d8360fb5f07fea2")
	must(t, "read the key", err)
	b = append([]byte{}, a...)
	b[35], b[55] = 0x02, 0xd5
	return a, b
}

// The index of lanes has hashes of the keys. Breaks caught: an event that waits for one of another key, is read with
// it, or is held by a dead letter of it, because the hashes are the same. Seen to fail with the keys themselves left
// out of what looks for due lanes, reads a lane, wakes heads, holds a lane, and finds what a retry names, each by
// itself.
func TestKeysOfOneHashAreTwoLanes(t *testing.T) {
	pg := harness.Postgres(t)
	c := usual(t, pg)
	c.HoldDead = true
	s := owner(t, pg, c)
	a, b := twins(t)
	if pg.Query(t, `SELECT md5('\x`+hex.EncodeToString(a)+`'::bytea) = md5('\x`+hex.EncodeToString(b)+
		`'::bytea)`) != "true" {
		t.Fatal("the keys have two hashes")
	}
	parked := func(n int, key []byte, retryIn time.Duration) store.Parked {
		p := parkedAt(n, "", retryIn)
		p.Key = key
		return p
	}
	parkAll(t, s, []store.Parked{parked(2, a, time.Hour), parked(3, b, 0), parked(4, b, store.NotDue)})
	portions, err := s.Portions(t.Context(), []store.Ask{{Lane: store.Lane{Topic: "t", Key: b}}}, 10, 1<<20)
	must(t, "read the lane", err)
	if len(portions) != 1 || rowIDs(portions[0].Rows) != "3 4" {
		t.Errorf("lane of the second key: got %+v, want events 3 and 4", portions)
	}
	held := deadAt(1, "")
	held.Key, held.Holds = a, true
	bury(t, s, held)
	lanes, _, err := s.DueLanes(t.Context(), 10, nil)
	if err != nil || len(lanes) != 1 || string(lanes[0].Key) != string(b) {
		t.Errorf("due lanes: got %q, %v, want that of the second key", lanes, err)
	}
	pg.Exec(t, `UPDATE cdc_relay_parked SET next_retry_at = NULL WHERE position_order > 2`)
	must(t, "wake the heads", s.WakeHeads(t.Context()))
	if got := pg.Query(t, `SELECT string_agg(position_order::text, ' ') FROM cdc_relay_parked
 WHERE next_retry_at <= now()`); got != "3" {
		t.Errorf("heads that are due: got %s, want 3", got)
	}
	pg.Exec(t, `UPDATE cdc_relay_parked SET next_retry_at = now() + interval '1 h'`)
	n, err := s.Count(t.Context(), store.RequestRetry, store.Filter{IDs: []string{uuid(2)}})
	if err != nil || n != 1 {
		t.Errorf("events that a retry of one concerns: got %d, %v, want 1", n, err)
	}
}
