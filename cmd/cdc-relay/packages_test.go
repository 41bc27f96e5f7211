package main

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/cdc-relay/cdc-relay/config"
)

// maintained returns the calls that a maintainer script of the packages makes, one per line, on a machine where
// systemd runs or not, and there is the user of the relay or not.
func maintained(t *testing.T, script string, systemd, user bool, args ...string) (calls []string, said string) {
	t.Helper()
	text, err := os.ReadFile("../../deploy/packages/" + script)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	running, etc := filepath.Join(dir, "systemd"), filepath.Join(dir, "etc")
	if systemd {
		running = dir
	}
	if err := os.MkdirAll(filepath.Join(etc, "secrets"), 0o750); err != nil {
		t.Fatal(err)
	}
	changed := strings.NewReplacer("/run/systemd/system", running, "rm -rf /etc/cdc-relay", "rm -rf "+etc).
		Replace(string(text))
	log, tools := filepath.Join(dir, "calls"), t.TempDir()
	for _, tool := range []string{"systemctl", "getent", "groupadd", "useradd", "userdel", "groupdel"} {
		fake := "#!/bin/sh\necho \"" + tool + " $*\" >>" + log + "\n"
		if tool == "getent" {
			fake = map[bool]string{true: "#!/bin/sh\nexit 0\n", false: "#!/bin/sh\nexit 2\n"}[user]
		}
		if err := os.WriteFile(filepath.Join(tools, tool), []byte(fake), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	run := exec.CommandContext(t.Context(), "sh", append([]string{"-c", changed, script}, args...)...)
	run.Env = []string{"PATH=" + tools + ":" + os.Getenv("PATH")}
	output, err := run.CombinedOutput()
	if err != nil {
		t.Errorf("%s %q: %v: %s", script, args, err, output)
	}
	if _, err := os.Stat(etc); err != nil {
		calls = append(calls, "rm /etc/cdc-relay")
	}
	noted, _ := os.ReadFile(log) // none if nothing was called
	for line := range strings.Lines(string(noted)) {
		calls = append(calls, strings.TrimSpace(line))
	}
	return calls, string(output)
}

// What dpkg and rpm call the scripts with, and what they may do then. Breaks it catches: a first installation that
// starts a relay without configuration; an upgrade that stops one, or starts one that does not run; a removal that
// takes the configuration or the user; a purge that leaves a password behind. Seen to fail with restart instead of
// try-restart, with 1 (rpm's upgrade) taken for a removal in prerm.sh, and with rm -rf for remove, too.
func TestMaintainerScriptsDoNoMoreThanTheirOccasionAsksFor(t *testing.T) {
	t.Parallel()
	const reload, restart = "systemctl daemon-reload", "systemctl try-restart cdc-relay.service"
	const disable = "systemctl --quiet --no-reload disable --now cdc-relay.service"
	const groupadd = "groupadd --system cdc-relay"
	const useradd = "useradd --system --gid cdc-relay --no-create-home --home-dir /nonexistent " +
		"--shell /usr/sbin/nologin --comment cdc-relay cdc-relay"
	for _, c := range []struct {
		script  string
		args    []string // of dpkg (deb-maintscript), or a number: of rpm
		systemd bool
		absent  bool // the user
		want    []string
		says    string
	}{
		{script: "preinst.sh", args: []string{"install"}, absent: true, want: []string{groupadd, useradd}},
		{script: "preinst.sh", args: []string{"upgrade", "0.1.0"}},
		{script: "preinst.sh", args: []string{"1"}, absent: true, want: []string{groupadd, useradd}},
		{script: "postinst.sh", args: []string{"configure", ""}, systemd: true, want: []string{reload}, says: "not started"},
		{script: "postinst.sh", args: []string{"configure", ""}, says: "not started"},
		{script: "postinst.sh", args: []string{"configure", "0.1.0"}, systemd: true, want: []string{reload, restart}},
		{script: "postinst.sh", args: []string{"configure", "0.1.0"}},
		{script: "postinst.sh", args: []string{"abort-upgrade", "0.1.1"}, systemd: true},
		{script: "postinst.sh", args: []string{"1"}, systemd: true, want: []string{reload}, says: "not started"},
		{script: "postinst.sh", args: []string{"2"}, systemd: true, want: []string{reload, restart}},
		{script: "prerm.sh", args: []string{"remove"}, systemd: true, want: []string{disable}, says: "keeps WAL"},
		{script: "prerm.sh", args: []string{"remove"}, says: "keeps WAL"},
		{script: "prerm.sh", args: []string{"upgrade", "0.1.1"}, systemd: true},
		{script: "prerm.sh", args: []string{"0"}, systemd: true, want: []string{disable}, says: "keeps WAL"},
		{script: "prerm.sh", args: []string{"1"}, systemd: true},
		{script: "postrm.sh", args: []string{"remove"}, systemd: true, want: []string{reload}},
		{script: "postrm.sh", args: []string{"upgrade", "0.1.1"}, systemd: true},
		{script: "postrm.sh", args: []string{"purge"}, systemd: true,
			want: []string{"rm /etc/cdc-relay", "userdel cdc-relay", "groupdel cdc-relay"}},
		{script: "postrm.sh", args: []string{"purge"}, absent: true, want: []string{"rm /etc/cdc-relay"}},
		{script: "postrm.sh", args: []string{"0"}, systemd: true, want: []string{reload}},
		{script: "postrm.sh", args: []string{"1"}, systemd: true},
	} {
		got, said := maintained(t, c.script, c.systemd, !c.absent, c.args...)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s %q, systemd runs: %t\ngot  %q\nwant %q", c.script, c.args, c.systemd, got, c.want)
		}
		if !strings.Contains(said, c.says) || (c.says == "") != (said == "") {
			t.Errorf("%s %q said %q, want %q in it", c.script, c.args, said, c.says)
		}
	}
}

// The configuration that the packages bring. Breaks it catches: one that the relay runs with before anybody has said
// what it is to join, and one that is still refused once they have. Seen to fail with a key misspelled in it, and with
// a broker and a database given.
func TestPackagedConfigurationLacksTheTwoKeysWithoutADefault(t *testing.T) {
	t.Parallel()
	const file = "../../deploy/packages/cdc-relay.yaml"
	cdcRelay(t, nil, "run", "--config", file).want(t, exitUsage, nil, []string{"postgres.url", "kafka.brokers"})
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	filled := strings.NewReplacer(`url: "" # `, "url: ", "# password_file", "password_file",
		"brokers: [] # ", "brokers: ").Replace(string(text))
	cfg, err := config.Load(config.Input{File: file, Text: []byte(filled)})
	if err != nil {
		t.Fatalf("the examples of the packaged configuration: %v", err)
	}
	if cfg.Postgres.PasswordFile == "" || len(cfg.Kafka.Brokers) == 0 {
		t.Errorf("the examples of the packaged configuration were not taken: got %+v", cfg.Postgres)
	}
}

// Break it catches: an image of a release that is another one than the Dockerfile builds. Seen to fail with another
// user in one of them.
func TestImageOfAReleaseIsTheOneThatTheDockerfileBuilds(t *testing.T) {
	t.Parallel()
	final := func(path string) []string {
		text, err := os.ReadFile("../../" + path)
		if err != nil {
			t.Fatal(err)
		}
		_, stage, _ := strings.Cut(string(text), "\nFROM scratch\n")
		var kept []string
		for line := range strings.Lines(stage) {
			word, _, _ := strings.Cut(line, " ")
			if slices.Contains([]string{"USER", "ENV", "EXPOSE", "ENTRYPOINT", "CMD"}, word) ||
				strings.Contains(line, "certificates") {
				kept = append(kept, strings.TrimSpace(line))
			}
		}
		return kept
	}
	if source, release := final("Dockerfile"), final("deploy/packages/Dockerfile"); !slices.Equal(source, release) ||
		len(release) < 6 {
		t.Errorf("the image of a release: got %q, want as the Dockerfile has it: %q", release, source)
	}
}

// Breaks it catches: a package that names a file that is not there, a unit whose files the package does not bring. Seen
// to fail with a script renamed, and with the configuration's name changed in the unit.
func TestPackagesBringWhatTheirUnitNeeds(t *testing.T) {
	t.Parallel()
	var release struct {
		Nfpms []struct {
			Scripts  map[string]string
			Contents []struct{ Src, Dst string }
		}
	}
	text, err := os.ReadFile("../../.goreleaser.yaml")
	if err == nil {
		err = yaml.Unmarshal(text, &release)
	}
	if err != nil || len(release.Nfpms) != 1 || len(release.Nfpms[0].Scripts) != 4 {
		t.Fatalf("packages: got %+v, %v, want one description of both, with four scripts", release.Nfpms, err)
	}
	brought := []string{"/usr/bin/cdc-relay"} // the binary, which goreleaser adds itself
	var sources []string
	for _, content := range release.Nfpms[0].Contents {
		brought, sources = append(brought, content.Dst), append(sources, content.Src)
	}
	for _, script := range release.Nfpms[0].Scripts {
		sources = append(sources, script)
	}
	for _, source := range sources {
		if source == "" || strings.HasPrefix(source, ".cache/") { // a directory; made by completions.sh
			continue
		}
		if found, err := filepath.Glob("../../" + source); err != nil || len(found) == 0 {
			t.Errorf("package: %s matches nothing (%v)", source, err)
		}
	}
	unit, err := os.ReadFile("../../deploy/systemd/cdc-relay.service")
	if err != nil {
		t.Fatal(err)
	}
	_, start, _ := strings.Cut(string(unit), "\nExecStart=")
	start, _, _ = strings.Cut(start, "\n")
	needed := 0
	for _, word := range strings.Fields(start) {
		if !strings.HasPrefix(word, "/") {
			continue
		}
		needed++
		if !slices.Contains(brought, word) {
			t.Errorf("the unit needs %s, and the package does not bring it", word)
		}
	}
	if needed != 2 {
		t.Errorf("files in ExecStart=%s: got %d, want the program and its configuration", start, needed)
	}
}

// Nothing here can run the workflow of a release. Breaks it catches: one that may do more than it has to, or that takes
// whatever an action's branch has that day; docs that have a signature verified as someone else's; install.sh without
// a checksum. Seen to fail with permissions for all jobs, with an action @main, with the workflow's file renamed in the
// docs, and with install.sh left out of the checksums.
func TestReleaseIsSignedByTheWorkflowThatTheDocsName(t *testing.T) {
	t.Parallel()
	var flow struct {
		On          struct{ Push struct{ Tags []string } }
		Permissions map[string]string
		Jobs        map[string]struct {
			Permissions map[string]string
			Steps       []struct{ Uses, Run string }
		}
	}
	var release struct {
		Checksum struct {
			ExtraFiles []struct{ Glob string } `yaml:"extra_files"`
		}
		Release struct {
			ExtraFiles []struct{ Glob string } `yaml:"extra_files"`
		}
	}
	for path, into := range map[string]any{".github/workflows/release.yml": &flow, ".goreleaser.yaml": &release} {
		text, err := os.ReadFile("../../" + path)
		if err == nil {
			err = yaml.Unmarshal(text, into)
		}
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
	job := flow.Jobs["release"]
	want := map[string]string{"contents": "write", "packages": "write", "id-token": "write"}
	if len(flow.Permissions) > 0 || !maps.Equal(job.Permissions, want) ||
		!slices.Equal(flow.On.Push.Tags, []string{"v*"}) {
		t.Errorf("the workflow may %v, its job %v, on tags %v; want nothing, %v, v*", flow.Permissions, job.Permissions,
			flow.On.Push.Tags, want)
	}
	var runs []string
	for _, step := range job.Steps {
		if step.Uses != "" && !regexp.MustCompile(`@[0-9a-f]{40}$`).MatchString(step.Uses) {
			t.Errorf("the action %s is not pinned by a commit", step.Uses)
		}
		runs = append(runs, step.Run)
	}
	if !slices.Contains(runs, "make release") {
		t.Errorf("the workflow runs %q, want make release", runs)
	}
	docs, err := os.ReadFile("../../docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	const identity = "--certificate-identity https://github.com/cdc-relay/cdc-relay/.github/workflows/release.yml@" +
		"refs/tags/v"
	if !strings.Contains(string(docs), identity) {
		t.Errorf("docs/install.md does not verify with %s", identity)
	}
	if !slices.Equal(release.Checksum.ExtraFiles, release.Release.ExtraFiles) || len(release.Release.ExtraFiles) != 1 {
		t.Errorf("files beside what is built: released %v, with checksums %v", release.Release.ExtraFiles,
			release.Checksum.ExtraFiles)
	}
}
