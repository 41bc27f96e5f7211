package packages

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// boots are versions of Spring Boot, each with the Spring Modulith that goes with it.
var boots = [][2]string{{"3.5.7", "1.4.4"}, {"4.0.7", "2.0.3"}}

// terminated is the exit code of Java after SIGTERM.
const terminated = 128 + int(syscall.SIGTERM)

// springProgram is a running program of Spring.
type springProgram struct {
	command *exec.Cmd
	log     *harness.Log
}

// spring starts a program that reads the flow's topic, with more settings.
func (f *flow) spring(t *testing.T, classpath, main string, settings ...string) *springProgram {
	t.Helper()
	java := harness.Program(t, "java", "openjdk-17-jre-headless")
	args := append([]string{
		"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m", "-cp", classpath, main,
		"--spring.datasource.url=" + jdbc(t, f.pg.URL),
		"--spring.kafka.bootstrap-servers=" + strings.Join(f.kafka.Addrs, ","),
		"--spring.kafka.properties.session.timeout.ms=6000", "--spring.main.banner-mode=off",
		"--cdc-relay.inbox.topics=" + f.topic, "--cdc-relay.inbox.kafka.group.id=" + f.topic,
		"--cdc-relay.inbox.back-off=20ms", "--cdc-relay.inbox.max-back-off=100ms", "--cdc-relay.outbox.modulith=true",
		"--logging.level.org.springframework.context.support.DefaultLifecycleProcessor=DEBUG",
	}, settings...)
	p := &springProgram{command: exec.CommandContext(t.Context(), java, args...), log: &harness.Log{}}
	p.command.Stdout, p.command.Stderr = p.log, p.log
	p.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.kill()
		if log := p.log.String(); t.Failed() {
			t.Logf("the end of a program's log: %s", log[max(0, len(log)-4000):])
		}
	})
	return p
}

func (p *springProgram) kill() {
	_ = p.command.Process.Kill()
	_ = p.command.Wait()
}

// stop ends the program with SIGTERM; meanwhile runs before it may have ended.
func (p *springProgram) stop(t *testing.T, meanwhile func()) {
	t.Helper()
	if err := p.command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	meanwhile()
	if err := p.command.Wait(); p.command.ProcessState.ExitCode() != terminated {
		t.Errorf("the program's end after SIGTERM: %v, want exit code %d", err, terminated)
	}
}

// await waits until a query has an answer.
func (f *flow) await(t *testing.T, what, query, want string) {
	t.Helper()
	harness.Eventually(t, 2*time.Minute, what, func(ctx context.Context) string {
		got, err := f.pg.TryQuery(ctx, query)
		if err != nil || got != want {
			return fmt.Sprint("got ", got, err, ", want ", want)
		}
		return ""
	})
}

// A program with the starter is killed while it handles, and another one stops in the middle of a handler. What methods
// with @Transactional do is part of the inbox's transaction, and so are events emitted by hand and by Modulith.
func TestASpringProgramHasEachEffectOnceInTheInboxesTransaction(t *testing.T) {
	harness.Full(t)
	for n, boot := range boots {
		t.Run("Boot "+boot[0], func(t *testing.T) {
			t.Parallel()
			if n > 0 && harness.Count(t, "other programs with Spring") == 0 {
				t.Skip("at night")
			}
			springKeepsItsPromises(t, harness.SpringPackages(t, boot[0], boot[1]))
		})
	}
}

func springKeepsItsPromises(t *testing.T, classpath string) {
	t.Helper()
	f := newFlow(t, newWorld(t, harness.Postgres(t), nil))
	f.pg.Exec(t, "CREATE TABLE said (text text)")
	start := func() *springProgram {
		return f.spring(t, classpath, "testshop.Shop", "--cdc-relay.inbox.name=billing")
	}
	running := start()
	f.send(t, 150)
	f.produce(t, object{"fails": "error", "until": 2}, object{"fails": "swallowed", "until": 1})
	for n := range harness.Count(t, "kills of a Spring program") {
		before := f.sent
		f.send(t, 300)
		f.decided(t, before-100+20*(n%5)) // in the middle of what was sent
		running.kill()
		running = start()
	}
	f.decided(t, f.sent)
	f.produce(t, object{"fails": "health"})
	f.decided(t, f.sent)

	lock, err := f.pg.Connect(t).Begin(t.Context())
	if err == nil {
		_, err = lock.Exec(t.Context(), "LOCK TABLE once IN SHARE MODE")
	}
	if err != nil {
		t.Fatal(err)
	}
	f.produce(t, object{"fails": "late"})
	f.await(t, "the handler runs", `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
		AND query LIKE 'INSERT INTO once%' AND wait_event_type = 'Lock'`, "1")
	running.stop(t, func() {
		harness.Eventually(t, time.Minute, "the program begins to stop", func(context.Context) string {
			if log := running.log.String(); !strings.Contains(log, "Stopping beans in phase 2147483647") {
				return log[max(0, len(log)-1000):]
			}
			return ""
		})
		if err := lock.Rollback(t.Context()); err != nil {
			t.Error(err)
		}
	})
	f.judge(t)
	f.judgeSpring(t)
}

// judgeSpring compares what is beside the effects.
func (f *flow) judgeSpring(t *testing.T) {
	t.Helper()
	effects := fmt.Sprint(f.sent - f.never)
	for _, c := range []struct{ what, sql, want string }{
		{"attempts of the event that failed twice, and of the one rolled back by a method that was ignored",
			"SELECT string_agg(attempt::text, ' ' ORDER BY n) FROM effect WHERE n IN (151, 152)", "3 2"},
		{"events emitted, different", `SELECT count(*) || ' ' || count(DISTINCT payload ->> 'n') FROM outbox_events
			WHERE event_type = 'OrderBooked' AND aggregate_type = 'order'`, effects + " " + effects},
		{"events of Modulith, different", `SELECT count(*) || ' ' || count(DISTINCT payload ->> 'n') FROM outbox_events
			WHERE event_type = 'Booked' AND aggregate_type = 'booking' AND aggregate_id = payload ->> 'n'`,
			effects + " " + effects},
		{"rows of savepoints that were left", "SELECT count(*) FROM scratch", "0"},
		{"health and metrics", "SELECT string_agg(text, ', ') FROM said",
			fmt.Sprintf("UP {}, dead letters %d.0, done before true", f.never)},
		{"partitions that are not released", "SELECT count(*) FROM inbox_offset WHERE holder IS NOT NULL", "0"},
	} {
		if got := f.pg.Query(t, c.sql); got != c.want {
			t.Errorf("%s: got %s, want %s", c.what, got, c.want)
		}
	}
}

// The programs of the page compile; at night its consumer handles an event, and settings that are wrong are refused.
func TestThePageOfTheSpringStarterIsTrue(t *testing.T) {
	harness.Full(t)
	classpath := harness.SpringPackages(t, boots[0][0], boots[0][1])
	text, err := os.ReadFile(root("java/spring/README.md"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var files, rabbit []string
	for _, block := range fenced.FindAllStringSubmatch(string(text), -1) {
		if block[1] != "java" {
			continue
		}
		first, _, _ := strings.Cut(block[2], "\n")
		file := filepath.Join(dir, filepath.Base(first))
		if strings.Contains(block[2], "@RabbitListener") {
			rabbit = append(rabbit, file)
		} else {
			files = append(files, file)
		}
		if err := os.WriteFile(file, []byte(block[2]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	aside := t.TempDir() // where the consumer of Kafka does not find the one of RabbitMQ
	for into, files := range map[string][]string{dir: files, aside: rabbit} {
		args := append([]string{
			"-Xlint:all,-processing,-classfile", "-Werror", "-parameters", "-cp", classpath, "-d", into,
		}, files...)
		javac := exec.CommandContext(t.Context(), harness.Program(t, "javac", "openjdk-17-jdk-headless"), args...)
		if out, err := javac.CombinedOutput(); err != nil {
			t.Fatalf("compile the page's programs: %v: %.3000s", err, out)
		}
	}
	if harness.Count(t, "other programs with Spring") > 0 {
		followSpring(t, dir+":"+classpath)
	}
}

func followSpring(t *testing.T, classpath string) {
	t.Helper()
	f := newFlow(t, newWorld(t, harness.Postgres(t), nil))
	f.pg.Exec(t, "CREATE TABLE invoice (order_id text, cents bigint)")
	for _, wrong := range [][]string{
		{"cdc-relay.inbox.name"}, // and none is given
		{"cdc-relay.inbox.attempts", "--cdc-relay.inbox.name=billing", "--cdc-relay.inbox.attempts=0"},
		{"spring.kafka.ssl", "--cdc-relay.inbox.name=billing", "--spring.kafka.ssl.trust-store-type=JKS"},
	} {
		p := f.spring(t, classpath, "shop.Billing", wrong[1:]...)
		harness.Eventually(t, time.Minute, "an error names "+wrong[0], func(context.Context) string {
			if log := p.log.String(); !strings.Contains(log, wrong[0]) {
				return log[max(0, len(log)-1000):]
			}
			return ""
		})
		if err := p.command.Wait(); p.command.ProcessState.ExitCode() != 1 {
			t.Errorf("%q: %v, want exit code 1", wrong[1:], err)
		}
	}
	p := f.spring(t, classpath, "shop.Billing", "--cdc-relay.inbox.name=billing")
	for n, value := range []string{`{"order": "42", "cents": 9990, "more": 1}`, `["not", "an order"]`} {
		record := &kgo.Record{Topic: f.topic, Value: []byte(value), Headers: []kgo.RecordHeader{
			{Key: "id", Value: []byte(id(n))}, {Key: "event_type", Value: []byte("OrderPlaced")},
		}}
		if err := f.client.ProduceSync(t.Context(), record).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	f.await(t, "the order has its invoice", "SELECT string_agg(order_id || ' ' || cents, ', ') FROM invoice", "42 9990")
	f.await(t, "what is no order is a dead letter", "SELECT string_agg(class, ', ') FROM inbox_dead", "permanent")
	p.stop(t, func() {})
}
