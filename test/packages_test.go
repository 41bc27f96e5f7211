package test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/test/embedded/child"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

var packagesFlag = flag.String("packages", "",
	"before/ and after/ in this directory hold packages, which come to this machine and go again: deploy/packages/try.sh")

const (
	packagedConfig = "/etc/cdc-relay/cdc-relay.yaml"
	packagedSecret = "/etc/cdc-relay/secrets/postgres-password"
	packagedUnit   = "/lib/systemd/system/cdc-relay.service"
)

// packaged is the relay as its deb brings it to this machine, run as its unit says, by this process instead of systemd.
type packaged struct {
	*scenario
	account *user.User
	process *child.Process // the present or last one
}

// packageFile is the package of that format and side: before or after the upgrade.
func packageFile(t *testing.T, side, format string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(*packagesFlag, side, "*."+format))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s packages in %s/%s: got %q, %v, want one", format, *packagesFlag, side, found, err)
	}
	return found[0]
}

// tool runs a program of the system, which must succeed, and returns what it printed.
func tool(t *testing.T, name string, args ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), name, args...)
	command.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"DEBIAN_FRONTEND=noninteractive", "LC_ALL=C"}
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v: %s", name, args, err, output)
	}
	return string(output)
}

func apt(t *testing.T, args ...string) string {
	t.Helper()
	return tool(t, "apt-get", append([]string{"-q", "-y", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=60"},
		args...)...)
}

// unit returns the values of a key in the installed unit, one string per line.
func unit(t *testing.T, key string) (values []string) {
	t.Helper()
	text, err := os.ReadFile(packagedUnit)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, found := strings.CutPrefix(strings.TrimSpace(line), key+"="); found {
			values = append(values, value)
		}
	}
	return values
}

// as is a command of the unit's user, with the environment that systemd would give it.
func (p *packaged) as(t *testing.T, command []string) child.Config {
	t.Helper()
	uid, errUID := strconv.ParseUint(p.account.Uid, 10, 32)
	gid, errGID := strconv.ParseUint(p.account.Gid, 10, 32)
	if err := errors.Join(errUID, errGID); err != nil {
		t.Fatal(err)
	}
	env := append(unit(t, "Environment"), "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin", "LANG=C.UTF-8",
		"USER="+p.account.Username, "LOGNAME="+p.account.Username, "HOME="+p.account.HomeDir)
	return child.Config{Path: command[0], Args: command[1:], Dir: "/", Env: env,
		As: &child.Account{UID: uint32(uid), GID: uint32(gid)}, DeathSignal: syscall.SIGKILL}
}

// begin starts what the unit starts.
func (p *packaged) begin(t *testing.T) {
	t.Helper()
	starts := unit(t, "ExecStart")
	if len(starts) != 1 {
		t.Fatalf("ExecStart: got %q, want one", starts)
	}
	process, err := child.Start(p.as(t, strings.Fields(starts[0])))
	if err != nil {
		t.Fatal(err)
	}
	p.process = process
	t.Cleanup(process.Kill)
}

// ended waits for the end of the process and compares its exit code.
func (p *packaged) ended(t *testing.T, want int) {
	t.Helper()
	select {
	case <-p.process.Done():
	case <-time.After(time.Minute):
		t.Fatalf("the relay did not end within a minute; its log ends: %s", p.process.LastWords())
	}
	if got := p.process.ExitCode(); got != want {
		t.Fatalf("exit code: got %d, want %d; its log ends: %s", got, want, p.process.LastWords())
	}
}

// stop does as systemd does.
func (p *packaged) stop(t *testing.T) {
	t.Helper()
	p.process.Signal(syscall.SIGTERM)
	p.ended(t, 0)
}

// start also waits until the relay is ready.
func (p *packaged) start(t *testing.T) {
	t.Helper()
	p.begin(t)
	url := fmt.Sprintf("http://%v/readyz", p.settings["http.listen"])
	harness.Eventually(t, time.Minute, "the installed relay is ready", func(ctx context.Context) string {
		if p.process.Ended() {
			t.Fatalf("it ended with code %d: %s", p.process.ExitCode(), p.process.LastWords())
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return err.Error()
		}
		request.Close = true
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err.Error()
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return response.Status
		}
		return ""
	})
}

// run is a command by hand, as the unit's user and with its configuration.
func (p *packaged) run(t *testing.T, args ...string) {
	t.Helper()
	command := append([]string{"/usr/bin/cdc-relay"}, append(args, "--config", packagedConfig)...)
	process, err := child.Start(p.as(t, command))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(process.Kill)
	<-process.Done()
	if process.ExitCode() != 0 {
		t.Fatalf("%q: exit code %d, want 0; it said: %s", command, process.ExitCode(), process.LastWords())
	}
}

// installPackage brings the first package here and runs it unconfigured: it must refuse.
func installPackage(t *testing.T, s *scenario) *packaged {
	t.Helper()
	apt(t, "install", packageFile(t, "before", "deb"))
	// a test that failed leaves nothing either
	t.Cleanup(func() { _ = exec.Command("dpkg", "--purge", "cdc-relay").Run() })
	users := unit(t, "User")
	if len(users) != 1 {
		t.Fatalf("User of the unit: got %q, want one", users)
	}
	account, err := user.Lookup(users[0])
	if err != nil {
		t.Fatalf("the package made no user for its unit: %v", err)
	}
	p := &packaged{scenario: s, account: account}
	const configured = 2 // the exit code of a wrong configuration, after which the unit does not start again
	p.begin(t)
	p.ended(t, configured)
	p.owned(t, packagedConfig, 0o640)
	p.owned(t, filepath.Dir(packagedConfig), 0o750|fs.ModeDir)
	p.owned(t, filepath.Dir(packagedSecret), 0o750|fs.ModeDir)
	return p
}

// owned compares the mode of a file, which must be root's and the group's of the unit.
func (p *packaged) owned(t *testing.T, path string, mode fs.FileMode) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	stat := info.Sys().(*syscall.Stat_t)
	if info.Mode() != mode || stat.Uid != 0 || strconv.Itoa(int(stat.Gid)) != p.account.Gid {
		t.Errorf("%s: got %v of %d:%d, want %v of 0:%s", path, info.Mode(), stat.Uid, stat.Gid, mode, p.account.Gid)
	}
}

// configure fills in the configuration and a secret, as an administrator does.
func (p *packaged) configure(t *testing.T) (text []byte) {
	t.Helper()
	if err := os.WriteFile(packagedSecret, []byte("not asked for\n"), 0o640); err != nil {
		t.Fatal(err)
	}
	tool(t, "chgrp", p.account.Gid, packagedSecret)
	text, err := p.settings.With("postgres.password_file", packagedSecret).YAML()
	if err == nil {
		err = os.WriteFile(packagedConfig, text, 0o640)
	}
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// firstEvent writes an event and waits until it is at the broker.
func (p *packaged) firstEvent(t *testing.T) {
	t.Helper()
	arrived := make(chan struct{}, 1)
	topics := []string{p.settings.Topic(p.types[0]), p.settings.Topic(p.types[1])}
	follower := harness.Follow(t, p.kafka.Addrs, topics, func(*kgo.Record) {
		select {
		case arrived <- struct{}{}:
		default:
		}
	})
	p.load(t, harness.Workload{Events: 1, Writers: 1, OnlyKept: true}).Wait(t)
	select {
	case <-arrived:
	case <-time.After(time.Minute):
		t.Fatalf("the first event did not arrive within a minute; the relay's log ends: %s", p.process.LastWords())
	}
	if err := follower.Close(); err != nil {
		t.Error(err)
	}
}

// The whole life of the deb on this machine. Breaks it catches: a package that cannot be installed, or starts before it
// is configured; a configuration that the unit's user cannot read, or that an upgrade replaces; an upgrade, stopped
// first or under the running relay, that loses or doubles an event at 500 events/s; a removal that takes what an
// administrator wrote, and a purge that leaves a file, a secret, or the user. Seen to fail with the user kept by the
// purge, and with the configuration as an ordinary file of the package: the upgrade replaced it.
func TestPackagesInstallDeliverUpgradeAndGo(t *testing.T) {
	harness.Full(t)
	if *packagesFlag == "" {
		t.Skip("nothing to try: make try-packages gives -packages")
	}
	pg, kafka := harness.Postgres(t), harness.Kafka(t)
	s := &scenario{pg: pg, kafka: kafka, settings: harness.NewSettings(t, pg, kafka.Addrs),
		types: []string{"order", "payment"}}
	for _, aggregateType := range s.types {
		kafka.CreateTopic(t, s.settings.Topic(aggregateType), 6, nil)
	}

	began := time.Now()
	p := installPackage(t, s)
	text := p.configure(t)
	p.run(t, "init")
	p.start(t)
	p.firstEvent(t)
	first := time.Since(began)
	if first > 2*time.Minute {
		t.Errorf("from apt-get install to the first event: got %v, want at most 2 minutes", first)
	}

	load := p.load(t, harness.Workload{Rate: 500})
	load.WaitCommitted(t, 500, time.Minute)
	p.stop(t) // stopped first, as one does by hand
	apt(t, "install", packageFile(t, "after", "deb"))
	p.start(t)
	load.WaitCommitted(t, 500, time.Minute)
	apt(t, "install", "--reinstall", packageFile(t, "after", "deb")) // under the running relay, as postinst.sh does
	p.stop(t)
	p.start(t)
	load.WaitCommitted(t, 500, time.Minute)
	load.Stop(t)
	p.settled(t)
	p.judge(t, 0)
	p.run(t, "verify", "--since", "1h")
	t.Logf("the first event came %v after the start of apt-get install; %s events in all", first, pg.Truth(t))

	if kept, err := os.ReadFile(packagedConfig); err != nil || string(kept) != string(text) {
		t.Errorf("the configuration after two upgrades: got %q, %v, want it as it was", kept, err)
	}
	p.owned(t, packagedConfig, 0o640)
	if version := tool(t, "/usr/bin/cdc-relay", "version"); !strings.Contains(version, "cdc-relay 0.1.1\n") {
		t.Errorf("the installed version: got %q, want 0.1.1", version)
	}
	p.stop(t)
	p.goes(t)
}

// goes removes the package, then purges it.
func (p *packaged) goes(t *testing.T) {
	t.Helper()
	var files []string
	for path := range strings.Lines(tool(t, "dpkg", "-L", "cdc-relay")) {
		if path = strings.TrimSpace(path); strings.Contains(path, "cdc-relay") {
			files = append(files, path)
		}
	}
	if said := apt(t, "remove", "cdc-relay"); !strings.Contains(said, "its replication slot in Postgres stays") {
		t.Errorf("a removal does not tell of the slot; it said:\n%s", said)
	}
	for _, path := range files {
		_, err := os.Lstat(path)
		stays := path == packagedConfig || path == filepath.Dir(packagedConfig) || path == filepath.Dir(packagedSecret)
		if stays != (err == nil) {
			t.Errorf("%s after a removal: %v; want that it stays: %t", path, err, stays)
		}
	}
	if _, err := os.Stat(packagedSecret); err != nil {
		t.Errorf("the secret after a removal: %v, want it kept", err)
	}
	if _, err := user.Lookup(p.account.Username); err != nil {
		t.Errorf("the user after a removal: %v, want it kept", err)
	}
	apt(t, "purge", "cdc-relay")
	for _, path := range append(files, packagedSecret) {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s after a purge: %v, want it gone", path, err)
		}
	}
	for _, database := range []string{"passwd", "group"} {
		if said, err := exec.CommandContext(t.Context(), "getent", database, p.account.Username).Output(); err == nil {
			t.Errorf("%s after a purge: got %q, want no entry", database, said)
		}
	}
}

// The rpm is looked at, not installed: this is Debian. Breaks it catches: an rpm that replaces the configuration at an
// upgrade, without scripts, or with the unit where no systemd looks. Seen to fail with config instead of
// config|noreplace.
func TestPackagesOfRPMHoldTheSame(t *testing.T) {
	harness.Full(t)
	if *packagesFlag == "" {
		t.Skip("nothing to try: make try-packages gives -packages")
	}
	if _, err := exec.LookPath("rpm"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("rpm is missing, and in CI that is a failure")
		}
		t.Skip("SKIPPED, NOTHING WAS TESTED: rpm is missing")
	}
	file := packageFile(t, "after", "rpm")
	listed := tool(t, "rpm", "-qp", "--nosignature", "--qf",
		`[%{FILENAMES} %{FILEMODES:perms} %{FILEUSERNAME}:%{FILEGROUPNAME} %{FILEFLAGS:fflags}\n]`, file)
	for _, want := range []string{
		"/usr/bin/cdc-relay -rwxr-xr-x root:root",
		packagedConfig + " -rw-r----- root:cdc-relay cn", // a configuration that is not replaced
		filepath.Dir(packagedSecret) + " drwxr-x--- root:cdc-relay",
		"/usr/lib/systemd/system/cdc-relay.service -rw-r--r-- root:root",
	} {
		if !strings.Contains("\n"+listed, "\n"+want) {
			t.Errorf("the rpm's files:\n%s\nwant among them %q", listed, want)
		}
	}
	scripts := tool(t, "rpm", "-qp", "--nosignature", "--scripts", file)
	for _, want := range []string{"preinstall scriptlet", "postinstall scriptlet", "preuninstall scriptlet",
		"postuninstall scriptlet", "systemctl try-restart cdc-relay.service"} {
		if !strings.Contains(scripts, want) {
			t.Errorf("the rpm's scripts have no %q:\n%s", want, scripts)
		}
	}
}
