package child

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Process is a running or ended server. Its methods may be called from any goroutine.
type Process struct {
	command *exec.Cmd
	done    chan struct{} // closed when the process has ended and its log was read
	log     *tail
}

// Start starts a process. The kernel sends the death signal when the thread that forked the child ends (prctl(2),
// PR_SET_PDEATHSIG), and Go ends threads at will, so that thread is locked and waits for the child.
func Start(c Config) (*Process, error) {
	p := &Process{command: exec.Command(c.Path, c.Args...), done: make(chan struct{}), log: &tail{}}
	p.command.Dir = c.Dir
	p.command.Env = c.Env
	p.command.Stdout = p.log
	if c.Log != nil {
		p.command.Stdout = io.MultiWriter(p.log, c.Log)
	}
	p.command.Stderr = p.command.Stdout
	p.command.WaitDelay = time.Second // orphaned grandchildren may hold the log's pipe a little longer
	p.command.SysProcAttr = &syscall.SysProcAttr{
		Setpgid:   true, // Ctrl-C on the terminal is for this process to pass on
		Pdeathsig: c.DeathSignal,
	}
	if c.As != nil {
		p.command.SysProcAttr.Credential = &syscall.Credential{Uid: c.As.UID, Gid: c.As.GID}
	}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.command.Start()
		started <- err
		if err == nil {
			_ = p.command.Wait() // how it ended: ExitCode
		}
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("run %s: %w", c.Path, err)
	}
	return p, nil
}

// PID is its process id.
func (p *Process) PID() int { return p.command.Process.Pid }

// Done is closed when it has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Ended reports whether it has ended.
func (p *Process) Ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// ExitCode is its exit code once Done is closed, -1 if a signal ended it.
func (p *Process) ExitCode() int { return p.command.ProcessState.ExitCode() }

// LastWords is the end of its log, at most 4 KiB.
func (p *Process) LastWords() string { return p.log.String() }

// Signal sends a signal to the process alone, not to its children. That it has ended in the meantime is no error: most
// signals are sent to make it end.
func (p *Process) Signal(s syscall.Signal) { _ = p.command.Process.Signal(s) }

// Kill ends the process and its children without warning and waits until they are gone: a new Postgres refuses to start
// while an old child still holds the shared memory.
func (p *Process) Kill() {
	p.Signal(syscall.SIGSTOP) // so that it forks no more
	family := p.children()
	p.Signal(syscall.SIGKILL)
	for _, c := range family {
		_ = syscall.Kill(c.pid, syscall.SIGKILL)
	}
	<-p.done
	for _, c := range family {
		for !c.gone() {
			time.Sleep(time.Millisecond) // not our child once orphaned: nothing to wait on
		}
	}
}

// Freeze stops it and its children with SIGSTOP.
func (p *Process) Freeze() {
	p.Signal(syscall.SIGSTOP)
	for _, c := range p.children() {
		_ = syscall.Kill(c.pid, syscall.SIGSTOP)
	}
}

// Thaw lets them go on.
func (p *Process) Thaw() {
	for _, c := range p.children() {
		_ = syscall.Kill(c.pid, syscall.SIGCONT)
	}
	p.Signal(syscall.SIGCONT)
}

// relative is a child of the server. Its number alone would not do: a busy machine gives it to the next process soon.
type relative struct {
	pid     int
	started string // clock ticks from the machine's start
}

// gone reports whether it has ended, even if its number is reused.
func (r relative) gone() bool {
	now := statusOf(r.pid)
	return now.state == "" || now.state == "Z" || now.started != r.started
}

// children lists the processes whose parent is the server. Backends are their own process groups, so a signal to the
// server's group does not reach them.
func (p *Process) children() []relative {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var found []relative
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if s := statusOf(pid); s.parent == p.PID() {
			found = append(found, relative{pid, s.started})
		}
	}
	return found
}

// status is a process's status by the kernel; state is "" if there is none.
type status struct {
	state   string // a letter
	parent  int
	started string
}

// statusOf reads /proc/<pid>/stat (proc(5)). The command's name, in parentheses, may hold anything.
func statusOf(pid int) status {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return status{}
	}
	const stateField, parentField, startField = 0, 1, 19 // behind the name
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) <= startField {
		return status{}
	}
	parent, _ := strconv.Atoi(fields[parentField])
	return status{fields[stateField], parent, fields[startField]}
}

// tail keeps the end of a log.
type tail struct {
	mu   sync.Mutex
	text []byte // guarded by mu
}

func (t *tail) Write(b []byte) (int, error) {
	const most = 4096
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, b...)
	if len(t.text) > most {
		t.text = append(t.text[:0], t.text[len(t.text)-most:]...)
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.text))
}
