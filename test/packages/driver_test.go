package packages

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// languages are the packages, each with the command of its driver.
var languages = map[string]func(*testing.T) []string{
	"Java": func(t *testing.T) []string {
		t.Helper()
		classpath := harness.JavaPackages(t)
		java := harness.Program(t, "java", "openjdk-17-jre-headless")
		// For processes that live for seconds.
		return []string{java, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m", "-cp", classpath, "Driver"}
	},
	"Python": func(t *testing.T) []string {
		t.Helper()
		path := harness.PythonPackages(t)
		python := harness.Program(t, "python3", "python3")
		return []string{"env", "PYTHONPATH=" + path, python, root("python/driver/driver.py")}
	},
	"TypeScript": func(t *testing.T) []string {
		t.Helper()
		dir := harness.NodePackages(t)
		// In the folder, so that it finds the packages as a user's program does.
		return []string{harness.Program(t, "node", "nodejs"), copied(t, "typescript/driver/driver.mjs", dir)}
	},
}

// each runs a test in each language.
func each(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	eachOn(t, harness.Postgres, test)
}

func eachOn(t *testing.T, server func(testing.TB) *harness.PG, test func(t *testing.T, w *world)) {
	t.Helper()
	for name, command := range languages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, server(t), command(t))
			w.language = name
			test(t, w)
		})
	}
}

func root(path string) string { return filepath.Join("..", "..", "packages", path) }

// copied copies a file into a folder, under a name of this test's own.
func copied(t *testing.T, file, dir string) (path string) {
	t.Helper()
	text, err := os.ReadFile(root(file))
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(dir, harness.Unique(t, "driver")+filepath.Ext(file))
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(path) })
	return path
}

// world is a database with an outbox, an inbox and what handlers write, and the command of a driver.
type world struct {
	language string
	pg       *harness.PG
	command  []string
}

func newWorld(t *testing.T, pg *harness.PG, command []string) *world {
	t.Helper()
	relay := harness.NewRelay(t, harness.NewSettings(t, pg, []string{"127.0.0.1:1"}))
	for _, args := range [][]string{{"init", "--emit"}, {"init", "--inbox", "public", "--postgres-url", pg.URL}} {
		if code, out, errs := relay.Run(t, args...); code != 0 {
			t.Fatalf("%q: exit code %d: %s%s", args, code, out, errs)
		}
	}
	pg.Exec(t, `CREATE TABLE effect (number bigint GENERATED ALWAYS AS IDENTITY, id text, key text, n integer,
		attempt integer, length integer);
		CREATE TABLE orders (id integer); CREATE TABLE scratch (n integer); CREATE TABLE fixed (n integer);
		CREATE TABLE once (n integer PRIMARY KEY)`)
	return &world{pg: pg, command: command}
}

// clear empties what scenarios fill.
func (w *world) clear(t *testing.T) {
	t.Helper()
	w.pg.Exec(t, `TRUNCATE effect, orders, scratch, fixed, once, outbox_events, inbox_event, inbox_parked, inbox_dead,
		inbox_offset, inbox_suspect RESTART IDENTITY`)
}

// driver is a running driver.
type driver struct {
	t       *testing.T
	command *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
	err     *harness.Log
}

type object = map[string]any

// start starts a driver and opens its inbox.
func (w *world) start(t *testing.T, open object) *driver {
	t.Helper()
	c := exec.CommandContext(t.Context(), w.command[0], w.command[1:]...) //nolint:gosec // of this test
	// Those that begin so are the tests' own, and a program of the product refuses what it does not know.
	tests := func(pair string) bool { return strings.HasPrefix(pair, "CDC_RELAY_") }
	c.Env = append(slices.DeleteFunc(os.Environ(), tests), "DATABASE_URL="+w.pg.URL)
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	d := &driver{t: t, command: c, err: &harness.Log{}}
	c.Stderr = d.err
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	d.in, d.out = in, bufio.NewReaderSize(out, 1<<20)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.kill)
	request := object{"op": "open"}
	for key, value := range open {
		request[key] = value
	}
	d.open(request)
	return d
}

// open opens another inbox.
func (d *driver) open(request object) (answer object) {
	d.t.Helper()
	if answer = d.do(request); answer["error"] != nil {
		d.t.Fatalf("open the inbox: %v", answer["error"])
	}
	return answer
}

func (d *driver) kill() {
	_ = d.command.Process.Kill()
	_ = d.in.Close()
	_ = d.command.Wait()
}

// try sends a command. died: the driver ended before it answered.
func (d *driver) try(command object) (answer object, died bool) {
	d.t.Helper()
	text, err := json.Marshal(command)
	if err != nil {
		d.t.Fatal(err)
	}
	if _, err := d.in.Write(append(text, '\n')); err != nil {
		return nil, true
	}
	line, err := d.out.ReadBytes('\n')
	if err != nil {
		_ = d.command.Wait()
		return nil, true
	}
	if err := json.Unmarshal(line, &answer); err != nil {
		d.t.Fatalf("%.300s answered %.300q: %v", text, line, err)
	}
	return answer, false
}

// do sends a command that the driver survives.
func (d *driver) do(command object) object {
	d.t.Helper()
	answer, died := d.try(command)
	if died {
		d.t.Fatalf("%.300s: the driver died: %.2000s", fmt.Sprint(command), d.err)
	}
	return answer
}
