package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// clockTick is the unit of CPU times in /proc: USER_HZ, 100 per second on every Linux that Go supports.
const clockTick = 10 * time.Millisecond

// processCPU is the CPU time, user and system, that a process has used, and that of its children that it has waited for
// (proc(5), /proc/pid/stat). Both 0 when it is gone.
func processCPU(pid int) (own, reaped time.Duration) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	const utime = 11 // the 14th field; the first after the name is the third
	var ticks [4]int64
	for n := range ticks {
		ticks[n], _ = strconv.ParseInt(fields[utime+n], 10, 64)
	}
	return time.Duration(ticks[0]+ticks[1]) * clockTick, time.Duration(ticks[2]+ticks[3]) * clockTick
}

// postgresCPU is the CPU time that a Postgres server has used since its start.
type postgresCPU struct {
	total time.Duration         // of every process, those that have ended included
	alive map[int]serverProcess // by process id
}

type serverProcess struct {
	walsender, session bool
	used               time.Duration
}

func readPostgresCPU(t testing.TB, postmaster int) postgresCPU {
	t.Helper()
	own, reaped := processCPU(postmaster)
	c := postgresCPU{total: own + reaped, alive: map[int]serverProcess{}}
	for _, pid := range children(t, postmaster) {
		title := processTitle(pid)
		p := serverProcess{walsender: strings.HasPrefix(title, "postgres: walsender")}
		p.session = !p.walsender && strings.Contains(title, "127.0.0.1(")
		p.used, _ = processCPU(pid)
		c.total += p.used
		c.alive[pid] = p
	}
	return c
}

func (c postgresCPU) minus(d postgresCPU) postgresCPU {
	rest := postgresCPU{total: c.total - d.total, alive: map[int]serverProcess{}}
	for pid, p := range c.alive {
		p.used -= d.alive[pid].used
		rest.alive[pid] = p
	}
	return rest
}

// walsenders and sessions are the parts of processes that were alive at the end.
func (c postgresCPU) walsenders() time.Duration {
	return c.sum(func(p serverProcess) bool { return p.walsender })
}

func (c postgresCPU) sessions() time.Duration {
	return c.sum(func(p serverProcess) bool { return p.session })
}

func (c postgresCPU) sum(of func(serverProcess) bool) (sum time.Duration) {
	for _, p := range c.alive {
		if of(p) {
			sum += p.used
		}
	}
	return sum
}

func children(t testing.TB, pid int) []int {
	t.Helper()
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil || len(lists) == 0 {
		t.Fatalf("list the processes of Postgres: no /proc/%d/task/*/children (%v)", pid, err)
	}
	var pids []int
	for _, list := range lists {
		text, _ := os.ReadFile(list) // a thread that ended has none
		for _, field := range strings.Fields(string(text)) {
			child, err := strconv.Atoi(field)
			if err != nil {
				t.Fatalf("list the processes of Postgres: %v", err)
			}
			pids = append(pids, child)
		}
	}
	return pids
}

// processTitle returns the title of a process in ps.
func processTitle(pid int) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return strings.TrimRight(strings.ReplaceAll(string(text), "\x00", " "), " ")
}

// cost is the resource usage of all processes up to one moment.
type cost struct {
	at       time.Time
	relay    time.Duration
	postgres postgresCPU
	kafka    time.Duration
	wal      uint64 // insert position
}

func (c cost) since(d cost) cost {
	return cost{at: c.at, relay: c.relay - d.relay, postgres: c.postgres.minus(d.postgres), kafka: c.kafka - d.kafka,
		wal: c.wal - d.wal}
}

// perMillion is CPU seconds per million events.
func perMillion(d time.Duration, events int) float64 {
	return d.Seconds() / float64(events) * 1e6
}
