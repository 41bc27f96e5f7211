package bench

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// profile records what relay and server spend their CPU on, with Linux perf, until the function is called. It costs a
// few per cent itself, so figures and profiles are better taken apart.
func (r *run) profile(name string) (stop func()) {
	r.t.Helper()
	if r.perf == "" {
		return func() {}
	}
	r.poll(5*time.Millisecond, "the relay streams", func() bool { return r.settled() > 0 })
	relay := r.record(name+"-relay", "-p", joined(r.relay.PID()))
	server := r.record(name+"-postgres", "-p", joined(children(r.t, r.pg.Server.PID())...))
	return func() {
		relay()
		server()
	}
}

// profileMachine does so of everything that runs, the writers and the broker included: who has the cores.
func (r *run) profileMachine(name string) (stop func()) {
	r.t.Helper()
	if r.perf == "" {
		return func() {}
	}
	return r.record(name+"-machine", "-a")
}

func joined(pids ...int) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(pids), " ", ","), "[]")
}

func (r *run) record(name string, of ...string) (stop func()) {
	r.t.Helper()
	command := exec.Command("perf", append([]string{"record", "-q", "-F", "497", "-g", "-o",
		filepath.Join(r.stage.perf, name+".data")}, of...)...)
	command.Stderr = os.Stderr
	if err := command.Start(); err != nil {
		r.t.Fatalf("record a profile: %v", err)
	}
	return func() {
		_ = command.Process.Signal(syscall.SIGINT) // has it ended, Wait says so
		_ = command.Wait()                         // perf ends by the signal that it was sent
	}
}
