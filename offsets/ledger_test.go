package offsets

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

func wantConfirmed(t *testing.T, l *Ledger, want outbox.LSN) {
	t.Helper()
	if got := l.Confirmed(); got != want {
		t.Fatalf("Confirmed: got %v, want %v", got, want)
	}
}

// Catches a ledger that confirms when a transaction is done although an earlier one is not. Seen to fail with what is
// settled confirmed past what is not.
func TestConfirmedWaitsForTheOldestTransaction(t *testing.T) {
	l := New(100)
	wantConfirmed(t, l, 100)

	l.Begin(1)
	first := l.Add()
	l.Commit(200)
	l.Begin(2)
	second := l.Add()
	l.Commit(300)
	l.Keepalive(350)

	l.Done(second)
	wantConfirmed(t, l, 100)
	if at, ok := l.Oldest(); at != 1 || !ok {
		t.Errorf("Oldest: got %d, %v, want 1, true", at, ok)
	}
	l.Done(first)
	wantConfirmed(t, l, 350)
	if _, ok := l.Oldest(); ok {
		t.Error("Oldest: got one, want none")
	}
	if got := l.Len(); got != 0 {
		t.Errorf("Len: got %d, want 0", got)
	}
}

// Catches a ledger that settles a transaction whose commit it has not seen: its events may be terminal before the
// commit arrives, and the rest of it may still be on its way. Seen to fail with keepalives heeded inside a transaction.
func TestConfirmedWaitsForTheCommitOfAnOpenTransaction(t *testing.T) {
	l := New(100)
	l.Begin(1)
	l.Done(l.Add())
	wantConfirmed(t, l, 100)
	if at, ok := l.Oldest(); at != 1 || !ok {
		t.Errorf("Oldest of an open transaction: got %d, %v, want 1, true", at, ok)
	}
	l.Keepalive(500)
	wantConfirmed(t, l, 100)
	last := l.Add()
	l.Commit(200)
	wantConfirmed(t, l, 100)
	l.Done(last)
	wantConfirmed(t, l, 200)
}

// Catches a ledger that loses the progress of an idle stream, or that goes back with a late keepalive.
func TestKeepalivesMoveAnIdleLedgerForwardOnly(t *testing.T) {
	l := New(100)
	for _, step := range []struct{ walEnd, want outbox.LSN }{{50, 100}, {100, 100}, {120, 120}, {110, 120}, {0, 120},
		{130, 130}} {
		l.Keepalive(step.walEnd)
		wantConfirmed(t, l, step.want)
	}
	l.Begin(1)
	l.Commit(200) // no event of ours in it
	wantConfirmed(t, l, 200)
	l.Keepalive(150)
	wantConfirmed(t, l, 200)
}

// Catches a ledger that grows with settled transactions while one old event is pending: a lane that waits for an hour
// must not cost memory for every transaction of that hour.
func TestSizeIsBoundedByPendingEvents(t *testing.T) {
	l := New(0)
	end := outbox.LSN(0)
	commit := func() *Txn {
		end += 10
		l.Begin(int64(end))
		txn := l.Add()
		l.Commit(end)
		return txn
	}
	oldest := commit()
	for range 10_000 {
		l.Done(commit())
		end += 5
		l.Keepalive(end)
	}
	if got := l.Len(); got != 1 {
		t.Errorf("Len with one pending event: got %d, want 1", got)
	}

	// From the newest to the oldest, and every second first: neighbours in the middle must merge as well.
	var txns []*Txn
	for range 1000 {
		txns = append(txns, commit())
	}
	for i := len(txns) - 1; i >= 0; i -= 2 {
		l.Done(txns[i])
	}
	for i := len(txns) - 2; i >= 0; i -= 2 {
		l.Done(txns[i])
		if got := l.Len(); got != l.Pending() {
			t.Fatalf("Len with %d transactions of one pending event: got %d, want as many", l.Pending(), got)
		}
	}
	if got := l.Len(); got != 1 {
		t.Errorf("Len with one pending event: got %d, want 1", got)
	}
	l.Done(oldest)
	wantConfirmed(t, l, end)
}

// Catches misuse that goes unnoticed: each of these could confirm WAL whose events are not terminal.
func TestMisusePanics(t *testing.T) {
	for name, test := range map[string]struct {
		misuse func(l *Ledger)
		want   string
	}{
		"begin inside a transaction":    {func(l *Ledger) { l.Begin(1); l.Begin(2) }, "Begin inside"},
		"add before any transaction":    {func(l *Ledger) { l.Add() }, "Add outside"},
		"add after commit":              {func(l *Ledger) { l.Begin(1); l.Commit(200); l.Add() }, "Add outside"},
		"add after commit, events wait": {func(l *Ledger) { addOne(l, 200); l.Add() }, "Add outside"},
		"commit without begin":          {func(l *Ledger) { l.Commit(200) }, "Commit without Begin"},
		"commit twice": {func(l *Ledger) { l.Begin(1); l.Commit(200); l.Commit(300) },
			"Commit without Begin"},
		"end below the starting LSN":    {func(l *Ledger) { l.Begin(1); l.Commit(99) }, "at 0/63, but WAL up to 0/64"},
		"end equal to the starting LSN": {func(l *Ledger) { l.Begin(1); l.Commit(100) }, "at 0/64, but WAL up to 0/64"},
		"end below an earlier commit": {func(l *Ledger) { l.Begin(1); l.Add(); l.Commit(200); l.Begin(2); l.Commit(150) },
			"at 0/96, but WAL up to 0/C8"},
		"end below an earlier keepalive": {func(l *Ledger) { l.Keepalive(200); l.Begin(2); l.Commit(150) },
			"at 0/96, but WAL up to 0/C8"},
		"done twice, transaction open": {func(l *Ledger) { l.Begin(1); x := l.Add(); l.Done(x); l.Done(x) },
			"more events"},
		"done twice, transaction waiting": {func(l *Ledger) { addOne(l, 200); x := addOne(l, 300); l.Done(x); l.Done(x) },
			"more events"},
		"done twice, transaction settled": {func(l *Ledger) { x := addOne(l, 200); l.Done(x); l.Done(x) }, "more events"},
		"done of nothing":                 {func(l *Ledger) { l.Done(nil) }, "another ledger"},
		"done of another session": {func(l *Ledger) { addOne(l, 200); l.Done(addOne(New(0), 200)) },
			"another ledger"},
	} {
		t.Run(name, func(t *testing.T) {
			l := New(100)
			got := panicOf(func() { test.misuse(l) })
			if !strings.Contains(got, test.want) || !strings.HasPrefix(got, "offsets: ") {
				t.Errorf("panic: got %q, want one of this package with %q", got, test.want)
			}
			l.Len() // the lock must be free again
		})
	}
}

func addOne(l *Ledger, end outbox.LSN) *Txn {
	l.Begin(int64(end))
	txn := l.Add()
	l.Commit(end)
	return txn
}

func panicOf(f func()) (message string) {
	defer func() {
		if r := recover(); r != nil {
			message = fmt.Sprint(r)
		}
	}()
	f()
	return "no panic"
}

// Catches an unguarded field (with -race), a lost count, and a Confirmed that other goroutines see too early: an event
// is marked before Done, so a reader that sees an end confirmed must find every event before it marked. Seen to fail
// with what is settled confirmed past what is not.
func TestConfirmedIsSafeWhileOthersComplete(t *testing.T) {
	const txns, perTxn, completers = 2000, 5, 4
	type event struct {
		txn  *Txn
		done *atomic.Bool
	}
	l := New(0)
	var marks [txns][perTxn]atomic.Bool
	events := make(chan event, 64)

	var completing sync.WaitGroup
	for worker := range completers {
		completing.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(worker)))
			var late []event
			finish := func(e event) { e.done.Store(true); l.Done(e.txn) }
			for e := range events {
				if late = append(late, e); len(late) > 8 {
					i := random.IntN(len(late))
					finish(late[i])
					late[i] = late[len(late)-1]
					late = late[:len(late)-1]
				}
			}
			for _, e := range late {
				finish(e)
			}
		})
	}

	stop := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		seen := 0
		for {
			confirmed := int(l.Confirmed())
			if confirmed < seen {
				t.Errorf("Confirmed went back: from %d to %d", seen, confirmed)
			}
			for ; seen < confirmed; seen++ {
				for i := range marks[seen] {
					if !marks[seen][i].Load() {
						t.Errorf("Confirmed is %d, but event %d of transaction %d is pending", confirmed, i, seen+1)
					}
				}
			}
			select {
			case <-stop:
				return
			default:
				runtime.Gosched()
			}
		}
	})

	for n := range txns {
		l.Begin(int64(n))
		for i := range perTxn {
			events <- event{l.Add(), &marks[n][i]}
		}
		l.Commit(outbox.LSN(n + 1))
	}
	close(events)
	completing.Wait()
	close(stop)
	watching.Wait()
	wantConfirmed(t, l, txns)
	if l.Pending() != 0 || l.Len() != 0 {
		t.Errorf("at the end: got %d pending, %d entries, want none", l.Pending(), l.Len())
	}
}

// Catches a ledger that makes garbage for every transaction. Seen to fail with settled entries not used again.
func TestTransactionsDoNotAllocate(t *testing.T) {
	l := New(0)
	end := outbox.LSN(0)
	held := [3]*Txn{}
	got := testing.AllocsPerRun(1000, func() {
		for i, txn := range held {
			if txn != nil {
				l.Done(txn)
			}
			end += 2
			held[i] = addOne(l, end)
			l.Keepalive(end + 1)
		}
	})
	if got != 0 {
		t.Errorf("allocations for three transactions: got %v, want 0", got)
	}
}

// A transaction of 100 rows, all done after its commit; ns/event is the cost of one event.
func BenchmarkTransactionOf100(b *testing.B) {
	const events = 100
	l := New(0)
	end := outbox.LSN(0)
	b.ReportAllocs()
	for b.Loop() {
		end++
		l.Begin(0)
		var txn *Txn
		for range events {
			txn = l.Add()
		}
		l.Commit(end)
		for range events {
			l.Done(txn)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/events, "ns/event")
}
