package cli

import (
	"context"
	"runtime"
	"testing"
	"time"
)

// share is a look at a process that uses so much of a core.
func (p *processors) share(of float64, late time.Duration) (one bool) {
	took := busyLook + late
	p.look(took, time.Duration(of*float64(took)), busyLook)
	return p.one
}

func TestBusyProcessHasAllCoresAfterOneLook(t *testing.T) {
	for _, busy := range []float64{0.6, 1, 8} {
		p := processors{one: true}
		if p.share(busy, 0) {
			t.Errorf("%v of a core: left with one", busy)
		}
	}
}

// Break it catches: a drain on a busy machine that is left with one core, as it gets little of it.
func TestStarvedProcessHasAllCoresAfterALateLook(t *testing.T) {
	p := processors{one: true}
	if p.share(0.1, 2*lateLook) {
		t.Error("a late look: left with one")
	}
	p = processors{one: true}
	if !p.share(0.01, 2*lateLook) {
		t.Error("a late look of an idle process: it needs no more than one")
	}
}

// Break it catches: a process at a steady pace that goes back and forth, as the same work costs more on all cores.
func TestCalmProcessIsLeftWithOneCoreForGood(t *testing.T) {
	var p processors
	looks := 0
	for ; !p.share(0.3, 0); looks++ {
		if looks > int(calmTime/busyLook) {
			t.Fatalf("not left with one core after %d looks", looks)
		}
	}
	if looks < int(calmTime/busyLook)-1 {
		t.Errorf("left with one core after %d looks, before it was calm for %v", looks, calmTime)
	}
	for range 100 {
		if !p.share(0.2, 0) || !p.share(0.45, 0) {
			t.Fatal("it has all cores again, at a share that one is enough for")
		}
	}
	p = processors{}
	for range 100 {
		if p.share(0.45, 0) {
			t.Fatal("left with one core at a share that is not calm")
		}
	}
}

// Break it catches: a process whose administrator has chosen the number of cores, and gets another.
func TestGivenGOMAXPROCSStays(t *testing.T) {
	t.Setenv("GOMAXPROCS", "3")
	before := runtime.GOMAXPROCS(0)
	FollowLoad(context.Background()) // returns
	if got := runtime.GOMAXPROCS(0); got != before {
		t.Errorf("got %d, want %d", got, before)
	}
}

func TestCoresFollowTheLoad(t *testing.T) {
	t.Setenv("GOMAXPROCS", "")
	all := runtime.GOMAXPROCS(0)
	if _, known := usedCPU(); !known || all == 1 {
		t.Skip("one core, or a system that does not tell the CPU time")
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		FollowLoad(ctx)
		close(ended)
	}()
	const patience = time.Minute
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for began := time.Now(); runtime.GOMAXPROCS(0) != 1; <-look.C {
		if time.Since(began) > patience {
			t.Fatal("an idle process still has all cores")
		}
	}
	for began := time.Now(); runtime.GOMAXPROCS(0) == 1; { // busy
		if time.Since(began) > patience {
			t.Fatal("a busy process still has one core")
		}
	}
	stop()
	<-ended
	if got := runtime.GOMAXPROCS(0); got != all {
		t.Errorf("at the end: got %d cores, want %d", got, all)
	}
}
