package cli

import (
	"context"
	"os"
	"runtime"
	"time"
)

const (
	// busyLook and calmLook are the shortest and the longest pause between two looks at the CPU time that the process
	// uses.
	busyLook, calmLook = 50 * time.Millisecond, time.Second
	// mostOfOne is the share of one core above which all are used at once.
	mostOfOne = 0.5
	// leastOfAll is the share below which one is enough, after calmTime. The same load takes up to twice the time on
	// several.
	leastOfAll = 0.4
	// calmTime is how long a process must be calm before it is left with one.
	calmTime = 2 * time.Second
	// A look that is late by lateLook, of a process that uses more than lateShare of a core: others use the machine, and
	// several threads get more of it than one. A share of a core says little about a process that is kept from using it.
	lateLook, lateShare = 10 * time.Millisecond, 0.05
)

// FollowLoad runs Go code on one core at a time while that is little work, and on as many as the runtime has by itself
// otherwise, until the context ends. At a few thousand events a second the threads of a Go program spend a third of
// their time on waking each other and on looking for work in each other's queues. A GOMAXPROCS of the environment stays
// as it is. Only a program may do so: the setting is the whole process's.
func FollowLoad(ctx context.Context) {
	if _, known := usedCPU(); !known || os.Getenv("GOMAXPROCS") != "" || runtime.GOMAXPROCS(0) == 1 {
		return
	}
	defer runtime.SetDefaultGOMAXPROCS()
	var p processors
	timer := time.NewTimer(calmLook)
	defer timer.Stop()
	began := time.Now()
	used, _ := usedCPU()
	for pause := calmLook; ; timer.Reset(pause) {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		now := time.Now()
		sum, _ := usedCPU()
		one := p.one
		pause = p.look(now.Sub(began), sum-used, pause)
		began, used = now, sum
		switch {
		case p.one && !one:
			runtime.GOMAXPROCS(1)
		case one && !p.one:
			runtime.SetDefaultGOMAXPROCS()
		}
	}
}

// processors decides whether one core is enough.
type processors struct {
	one  bool
	calm time.Duration // for so long
}

// look takes in the time since the last look, the CPU time used in it, and how long it was to be, and returns the pause
// until the next one.
func (p *processors) look(took, used, meant time.Duration) (pause time.Duration) {
	share := used.Seconds() / took.Seconds()
	most := leastOfAll
	if p.one {
		most = mostOfOne
	}
	if share > most || took-meant > lateLook && share > lateShare {
		p.one, p.calm = false, 0
		return busyLook
	}
	if p.calm += took; p.calm >= calmTime {
		p.one = true
	}
	// Half the share of mostOfOne, twice the pause.
	return min(time.Duration(float64(busyLook)*mostOfOne/max(share, 0.001)), calmLook)
}
