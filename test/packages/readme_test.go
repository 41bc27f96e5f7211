package packages

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// page is a README whose five minutes a test does as a user would.
type page struct {
	file    string
	run     []string // what runs a program
	project string   // a file that goes before; the first line of each is a comment with its name
	place   string
	handle  string
	install string // the command that installs
	code    int    // with which the consumer ends after SIGTERM
	// prepare returns what the line that installs becomes, with the packages as they are built here.
	prepare func(t *testing.T, line, dir string) (installs string, environ []string)
}

var pages = map[string]page{
	"Java": {
		file: "java/README.md", run: []string{"java", "-cp", "lib/*"}, place: "Place.java", handle: "Consumer.java",
		project: "pom.xml", install: "mvn", code: 128 + int(syscall.SIGTERM),
		prepare: func(t *testing.T, line, _ string) (string, []string) {
			t.Helper()
			return line, []string{"MAVEN_OPTS=-Dmaven.repo.local=" + harness.JavaRepository(t)}
		},
	},
	"TypeScript": {
		file: "typescript/README.md", run: []string{"node"}, place: "place.mjs", handle: "consumer.mjs",
		install: "npm install",
		prepare: func(t *testing.T, line, _ string) (string, []string) {
			t.Helper()
			built := harness.NodePackages(t)
			line = replaced(t, line, "@cdc-relay/emit", filepath.Join(built, "cdc-relay-emit-*.tgz"))
			return replaced(t, line, "@cdc-relay/inbox", filepath.Join(built, "cdc-relay-inbox-*.tgz")) +
				" --no-audit --no-fund --loglevel=error", nil
		},
	},
	"Python": {
		file: "python/README.md", run: []string{"python3"}, place: "place.py", handle: "consumer.py",
		install: "pip install",
		prepare: func(t *testing.T, line, dir string) (string, []string) {
			t.Helper()
			built, _, _ := strings.Cut(harness.PythonPackages(t), ":")
			line = replaced(t, line, "cdc-relay-emit", filepath.Join(built, "wheels", "cdc_relay_emit-*.whl"))
			line = replaced(t, line, "cdc-relay-inbox", filepath.Join(built, "wheels", "cdc_relay_inbox-*.whl"))
			site := filepath.Join(dir, "site")
			return strings.Replace(line, "pip install", "python3 -m pip install -q", 1), []string{
				"PYTHONPATH=" + site, "PIP_TARGET=" + site, "PIP_DISABLE_PIP_VERSION_CHECK=1",
			}
		},
	},
}

// replaced puts the one file that matches a pattern in the place of a name.
func replaced(t *testing.T, line, name, pattern string) string {
	t.Helper()
	if !strings.Contains(line, name) {
		t.Fatalf("the line that installs has no %q: %s", name, line)
	}
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) != 1 {
		t.Fatalf("%s: got %d files (%v), want 1", pattern, len(files), err)
	}
	return strings.Replace(line, name, files[0], 1)
}

var fenced = regexp.MustCompile("(?s)```(\\w+)\n(.*?)```")

// The five minutes of each README, from a folder that is empty: install what is built, place an order, have its event
// published by the relay, and handle it.
func TestTheFiveMinutesOfEachReadmeWork(t *testing.T) {
	harness.Full(t)
	if harness.Count(t, "READMEs that are followed") == 0 {
		t.Skip("at night")
	}
	for language, p := range pages {
		t.Run(language, func(t *testing.T) { p.follow(t) }) // one at a time: their groups have one name
	}
}

// The table of lines in packages/README.md.
func TestThePageCountsTheLinesOfConsumers(t *testing.T) {
	table, err := os.ReadFile(root("README.md"))
	if err != nil {
		t.Fatal(err)
	}
	byHand := map[string]string{
		"Java": "java/Consumer.java", "Python": "python/consumer.py", "TypeScript": "node/consumer.mjs",
	}
	for language, p := range pages {
		readme, err := os.ReadFile(root(p.file))
		if err != nil {
			t.Fatal(err)
		}
		_, program, _ := strings.Cut(string(readme), p.handle+"\n")
		program, _, _ = strings.Cut(program, "```")
		example, err := os.ReadFile(filepath.Join("..", "..", "examples", "languages", byHand[language]))
		if err != nil {
			t.Fatal(err)
		}
		row := fmt.Sprintf("| [%s](%s) | %d | %d |", language, p.file, lines(program), lines(string(example)))
		if !strings.Contains(string(table), row) {
			t.Errorf("packages/README.md has no row %q", row)
		}
	}
}

// lines counts those that are neither blank nor comments. Python's docstrings count.
func lines(program string) int {
	return len(regexp.MustCompile(`(?m)^\s*[^\s/#*]`).FindAllString(program, -1))
}

func (p page) follow(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile(root(p.file))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var tables, install string
	for _, block := range fenced.FindAllStringSubmatch(string(text), -1) {
		first, _, _ := strings.Cut(block[2], "\n")
		name := strings.Trim(first, "/# <!->")
		switch {
		case name != "" && slices.Contains([]string{p.project, p.place, p.handle}, name):
			if err := os.WriteFile(filepath.Join(dir, name), []byte(block[2]), 0o600); err != nil {
				t.Fatal(err)
			}
		case strings.HasPrefix(block[2], p.install):
			install = strings.TrimSpace(block[2])
		case strings.Contains(block[2], "psql"):
			tables = block[2]
		}
	}
	pg, kafka := harness.Postgres(t), harness.Kafka(t)
	settings := harness.NewSettings(t, pg, kafka.Addrs)
	kafka.CreateTopic(t, settings.Topic("order"), partitions, nil)
	relay := harness.NewRelay(t, settings)
	for _, args := range [][]string{{"init", "--emit"}, {"init", "--inbox", "public", "--postgres-url", pg.URL}} {
		if code, out, errs := relay.Run(t, args...); code != 0 {
			t.Fatalf("%q: exit code %d: %s%s", args, code, out, errs)
		}
	}
	for _, sql := range regexp.MustCompile(`-c '([^']*)'`).FindAllStringSubmatch(tables, -1) {
		pg.Exec(t, sql[1])
	}
	relay.Start(t)
	relay.WaitReady(t, time.Minute)

	line, environ := p.prepare(t, install, dir)
	environ = append(append(os.Environ(), environ...), "DATABASE_URL="+pg.URL, "BROKERS="+strings.Join(kafka.Addrs, ","),
		"JDBC_URL="+jdbc(t, pg.URL), "TOPIC="+settings.Topic("order"))
	inDir := func(program string, args ...string) *exec.Cmd {
		c := exec.CommandContext(t.Context(), program, args...)
		c.Dir, c.Env = dir, environ
		c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		return c
	}
	program := func(name string) *exec.Cmd { return inDir(p.run[0], append(slices.Clone(p.run[1:]), name)...) }
	for _, c := range []*exec.Cmd{inDir("sh", "-c", line), program(p.place)} {
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%q: %v: %.2000s", c.Args, err, out)
		}
	}
	consumer := program(p.handle)
	said := &strings.Builder{}
	consumer.Stdout, consumer.Stderr = said, said
	if err := consumer.Start(); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, time.Minute, "the order has its invoice", func(ctx context.Context) string {
		got, err := pg.TryQuery(ctx, "SELECT string_agg(order_id || ' ' || cents, ', ') FROM invoice")
		if err != nil || got != "42 9990" {
			return "got " + got
		}
		return ""
	})
	if err := consumer.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := consumer.Wait(); consumer.ProcessState.ExitCode() != p.code {
		t.Errorf("the consumer's end after SIGTERM: %v, want exit code %d: %.2000s", err, p.code, said)
	}
	if got := pg.Query(t, "SELECT count(*) FROM inbox_offset WHERE holder IS NOT NULL"); got != "0" {
		t.Errorf("partitions that are not released: got %s, want 0", got)
	}
}

// jdbc is a URL of Postgres as JDBC has it.
func jdbc(t *testing.T, text string) string {
	t.Helper()
	at, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	password, _ := at.User.Password()
	user := url.Values{"user": {at.User.Username()}, "password": {password}}
	return "jdbc:postgresql://" + at.Host + at.Path + "?" + user.Encode()
}
