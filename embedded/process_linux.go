package embedded

import (
	"bytes"
	"context"
	"errors"
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

func supported() error { return nil }

// process is a server process and those that it forked.
type process struct {
	command *exec.Cmd
	done    chan struct{} // closed when the process has ended and its log was read
	log     *tail
}

// startProcess starts a server that ends with this process, whatever happens to it: the kernel sends SIGINT when the
// thread that forked it ends (prctl(2), PR_SET_PDEATHSIG), so that thread is locked and waits for the server.
func startProcess(as *account, dir string, log io.Writer, path string, args ...string) (*process, error) {
	p := &process{command: exec.Command(path, args...), done: make(chan struct{}), log: &tail{}}
	p.command.Dir = dir
	p.command.Env = environment(dir)
	p.command.Stdout = p.log
	if log != nil {
		p.command.Stdout = io.MultiWriter(p.log, log)
	}
	p.command.Stderr = p.command.Stdout
	p.command.WaitDelay = time.Second // orphaned children may hold the log's pipe a little longer
	p.command.SysProcAttr = &syscall.SysProcAttr{
		Credential: as.credential(),
		Setpgid:    true, // Ctrl-C on the terminal is for this process to pass on
		Pdeathsig:  syscall.SIGINT,
	}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.command.Start()
		started <- err
		if err == nil {
			_ = p.command.Wait() // how it ended shows in its log
		}
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("run %s: %w", path, err)
	}
	return p, nil
}

func (p *process) pid() int { return p.command.Process.Pid }

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

func (p *process) lastWords() string { return p.log.String() }

// signal sends to the postmaster alone. That it has ended meanwhile is no error: that is what signals are for here.
func (p *process) signal(s syscall.Signal) { _ = p.command.Process.Signal(s) }

// kill ends the server and its children without warning and waits until they are gone: a new server refuses to start
// while an old child still holds the shared memory.
func (p *process) kill() {
	p.signal(syscall.SIGSTOP) // so that it forks no more
	family := p.children()
	p.signal(syscall.SIGKILL)
	for _, pid := range family {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	<-p.done
	for _, pid := range family {
		for syscall.Kill(pid, 0) == nil && !isZombie(pid) {
			time.Sleep(time.Millisecond) // not our child once orphaned: nothing to wait on
		}
	}
}

func (p *process) freeze() {
	p.signal(syscall.SIGSTOP)
	for _, pid := range p.children() {
		_ = syscall.Kill(pid, syscall.SIGSTOP)
	}
}

func (p *process) thaw() {
	for _, pid := range p.children() {
		_ = syscall.Kill(pid, syscall.SIGCONT)
	}
	p.signal(syscall.SIGCONT)
}

// children lists the processes whose parent is the server. Backends are their own process groups, so a signal to the
// server's group does not reach them.
func (p *process) children() []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var found []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if _, parent := statusOf(pid); parent == p.pid() {
			found = append(found, pid)
		}
	}
	return found
}

func isZombie(pid int) bool {
	state, _ := statusOf(pid)
	return state == "Z"
}

// statusOf reads a process's state letter and its parent from /proc/<pid>/stat (proc(5)); parent 0 if it is gone. The
// command's name, in parentheses, may hold anything.
func statusOf(pid int) (state string, parent int) {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return "", 0
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 2 {
		return "", 0
	}
	parent, _ = strconv.Atoi(fields[1])
	return fields[0], parent
}

// run runs a command to its end; the error of a failed one carries what it said.
func run(ctx context.Context, as *account, dir, path string, args ...string) error {
	command := exec.CommandContext(ctx, path, args...)
	command.Dir = dir
	command.Env = environment(dir)
	command.SysProcAttr = &syscall.SysProcAttr{Credential: as.credential(), Setpgid: true}
	output, err := command.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(path), errors.Join(err, ctx.Err()), bytes.TrimSpace(output))
	}
	return nil
}

// environment is all that the servers get: the PG* variables of the caller are meant for clients.
func environment(dir string) []string {
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + dir, "LC_ALL=C"}
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
