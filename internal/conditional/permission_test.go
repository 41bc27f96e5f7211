package conditional_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/conditional"
	"github.com/cdc-relay/cdc-relay/sink"
)

// slow is a log that is answered late and appended to by another relay in the meantime.
type slow struct{ *memory }

func (s slow) Append(ctx context.Context, end int64, records []*sink.Record) conditional.Answer {
	if len(s.entries) == 0 {
		time.Sleep(2 * time.Second) // the process is frozen, and its successor writes
		s.entries = append(s.entries, "its successor's")
	}
	return s.memory.Append(ctx, end, records)
}

// A relay that was frozen in a request goes on when another one has the slot: what it knows of the log's end then is
// right, and it may not send. Catches: an append that no one was asked about. Seen to fail with the age of the
// permission not looked at.
func TestAnOldPermissionAppendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{dice: rand.New(rand.NewPCG(1, 1))}
		log := conditional.NewLog(new(conditional.Outboxes))
		if err := log.Start(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		b := &sink.Batch{Records: []*sink.Record{{Value: []byte("a")}}}
		log.Produce(t.Context(), slow{m}, []*sink.Batch{b})
		if o := b.Outcome; o.Verdict != sink.NotWritten || o.Err == nil || len(m.entries) != 1 {
			t.Errorf("first: got %+v and the log %v, want not written", o, m.entries)
		}
		log.Produce(t.Context(), slow{m}, []*sink.Batch{b}) // the engine has asked whether it may send
		if o := b.Outcome; o.Verdict != sink.Accepted || o.FirstOffset != 2 {
			t.Errorf("then: got %+v and the log %v, want accepted at 2", o, m.entries)
		}
	})
}

// lazy is a log that needs half of a permission's life for each append.
type lazy struct{ *memory }

func (s lazy) Append(ctx context.Context, end int64, records []*sink.Record) conditional.Answer {
	time.Sleep(501 * time.Millisecond)
	return s.memory.Append(ctx, end, records)
}

// Catches: portions that go on when another relay may have the slot; a front that is appended once more, or that its
// engine takes for trouble. Seen to fail with the age of the permission looked at before the first portion alone.
func TestPortionsAskAgainWhetherTheyMay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{dice: rand.New(rand.NewPCG(1, 1)), portion: 2}
		log := conditional.NewLog(new(conditional.Outboxes))
		if err := log.Start(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		b := &sink.Batch{}
		for _, v := range "abcdefg" {
			b.Records = append(b.Records, &sink.Record{Value: []byte(string(v))})
		}
		log.Produce(t.Context(), lazy{m}, []*sink.Batch{b})
		if o := b.Outcome; o.Verdict != sink.NotWritten || o.Err != nil || o.Written != 4 || len(m.entries) != 4 {
			t.Errorf("first: got %+v and the log %v, want four written, and nothing wrong", o, m.entries)
		}
		b.Records = b.Records[4:]
		log.Produce(t.Context(), lazy{m}, []*sink.Batch{b}) // the engine has asked whether it may send
		if o, got := b.Outcome, strings.Join(m.entries, ""); o.Verdict != sink.Accepted || got != "abcdefg" {
			t.Errorf("then: got %+v and the log %s, want all of it", o, got)
		}
	})
}

// Catches: a request that waits for a slow one to the same log, and appends under a permission from before. Seen to
// fail with the age counted from the end of the wait.
func TestRequestThatWaitedForAnotherAsksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{dice: rand.New(rand.NewPCG(1, 1)), entries: []string{"one"}}
		log := conditional.NewLog(new(conditional.Outboxes))
		if err := log.Start(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		first, second := &sink.Batch{}, &sink.Batch{Records: []*sink.Record{{Value: []byte("late")}}}
		for _, v := range "abc" {
			first.Records = append(first.Records, &sink.Record{Value: []byte(string(v))})
		}
		m.portion = 1
		go log.Produce(t.Context(), lazy{m}, []*sink.Batch{first}) // for a second and a half
		synctest.Wait()
		log.Produce(t.Context(), lazy{m}, []*sink.Batch{second})
		late := strings.Contains(fmt.Sprint(m.entries), "late")
		if o := second.Outcome; o.Verdict != sink.NotWritten || o.Err != nil || late {
			t.Errorf("got %+v and the log %v, want not written, and nothing wrong", o, m.entries)
		}
	})
}

// A relay that knows no end asks for it, and may be told of what its successor has written. Catches: an append behind
// an end that was told under a permission of before, by the batch for which it was asked for or by another. Seen to
// fail with an append in the same call, and with what is to be proved forgotten after the call.
func TestEndThatWasAskedForWaitsForAPermission(t *testing.T) {
	m := &memory{dice: rand.New(rand.NewPCG(1, 1)), entries: []string{"its successor's"}}
	log := conditional.NewLog(new(conditional.Outboxes))
	began := time.Now()
	b, other := &sink.Batch{Records: []*sink.Record{{Value: []byte("a")}}}, &sink.Batch{
		Records: []*sink.Record{{Value: []byte("b")}}, Proved: began}
	for _, b := range []*sink.Batch{b, other, b} {
		log.Produce(t.Context(), m, []*sink.Batch{b})
		if o := b.Outcome; o.Verdict != sink.NotWritten || o.Err != nil || !o.Prove.After(began) || len(m.entries) != 1 {
			t.Errorf("first: got %+v and the log %v, want not written, nothing wrong, and something to prove", o, m.entries)
		}
	}
	b.Proved = b.Outcome.Prove
	log.Produce(t.Context(), m, []*sink.Batch{b, other})
	if o := b.Outcome; o.Verdict != sink.Accepted || o.FirstOffset != 2 {
		t.Errorf("then: got %+v and the log %v, want accepted at 2", o, m.entries)
	}
}
