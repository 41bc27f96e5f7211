package main

import (
	"bytes"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Break it catches: a unit or a release that names what is not there, and a stop that is cut short (seen to fail with
// another flag).
func TestUnitAndReleaseNameWhatIsThere(t *testing.T) {
	t.Parallel()
	unit, err := os.ReadFile("../../deploy/systemd/cdc-relay.service")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"ExecStart=/usr/bin/cdc-relay run --config ", "TimeoutStopSec=30s",
		"RestartPreventExitStatus=2", "User=cdc-relay"} {
		if !strings.Contains(string(unit), want) {
			t.Errorf("unit: no %q", want)
		}
	}
	var release struct {
		Builds []struct {
			Main    string
			Ldflags []string
		}
		Archives []struct{ Files []string }
		Sboms    []struct{ Artifacts string }
		Checksum struct{ Algorithm string }
	}
	text, err := os.ReadFile("../../.goreleaser.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &release); err != nil {
		t.Fatal(err)
	}
	if len(release.Builds) != 2 || len(release.Archives) != 2 || len(release.Sboms) != 1 ||
		release.Checksum.Algorithm != "sha256" {
		t.Fatalf("release: got %+v, want builds and archives of the relay and of its demo, and SBOMs, with SHA-256", release)
	}
	for _, build := range release.Builds {
		flags := build.Ldflags[0]
		if _, err := os.Stat("../../" + build.Main); err != nil || !strings.Contains(flags, "-X main.version=") ||
			!strings.Contains(flags, "-X main.commit=") {
			t.Errorf("build: got %+v, %v", build, err)
		}
	}
	for _, pattern := range slices.Concat(release.Archives[0].Files, release.Archives[1].Files) {
		if found, err := filepath.Glob("../../" + pattern); err != nil || len(found) == 0 {
			t.Errorf("archive: %s matches nothing (%v)", pattern, err)
		}
	}
}

// Break it catches: a line of the unit that systemd does not know, or a value that it does not take: it goes on without
// that protection, and says so in its log only. Seen to fail with ProtectHomes, and with RestrictRealtime=maybe.
func TestSystemdTakesEachLineOfTheUnit(t *testing.T) {
	t.Parallel()
	program := harness.Program(t, "systemd-analyze", "systemd")
	text, err := os.ReadFile("../../deploy/systemd/cdc-relay.service")
	if err != nil {
		t.Fatal(err)
	}
	unit := filepath.Join(t.TempDir(), "cdc-relay.service")
	text = bytes.ReplaceAll(text, []byte("ExecStart=/usr/bin/cdc-relay "), []byte("ExecStart=/bin/true "))
	if err := os.WriteFile(unit, text, 0o600); err != nil {
		t.Fatal(err)
	}
	said, err := exec.CommandContext(t.Context(), program, "verify", unit).CombinedOutput()
	if err != nil || len(said) > 0 {
		t.Errorf("systemd-analyze verify: %v, it said %s", err, said)
	}
	// 2.1 before hostname, clock, kernel log, mounts, users and other processes were out of reach, 1.1 with that.
	if said, err := exec.CommandContext(t.Context(), program, "security", "--offline=true", "--threshold=12", "--no-pager",
		unit).CombinedOutput(); err != nil {
		t.Errorf("systemd-analyze security: the exposure is more than 1.2 (%v):\n%s", err, said)
	}
}

// A tag of an action can be moved to other code, which then has this project's secrets. Break it catches: an action by
// a tag. Written, but not run, to fail with actions/checkout@v5.
func TestActionsArePinnedByCommit(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../.github/workflows/*.yml")
	if err != nil || len(files) == 0 {
		t.Fatalf("found no workflows: %v", err)
	}
	pinned, uses := regexp.MustCompile(`@[0-9a-f]{40} # v[0-9]`), 0
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if !strings.Contains(line, "uses:") || strings.Contains(line, "uses: ./") {
				continue
			}
			if uses++; !pinned.MatchString(line) {
				t.Errorf("%s: %s is not pinned by a commit, with its version behind it", path, strings.TrimSpace(line))
			}
		}
	}
	if uses == 0 {
		t.Error("found no action")
	}
}

// Break it catches: an image that cannot be built, because a folder that the binary is made of is kept out of its
// context. Seen to fail with .dockerignore as it was, without tracing.
func TestImageIsBuiltOfAllThatTheBinaryNeeds(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../.dockerignore")
	if err != nil {
		t.Fatal(err)
	}
	const module = "github.com/cdc-relay/cdc-relay/"
	list := exec.Command("go", "list", "-deps", ".")
	list.Env = append(os.Environ(), "CGO_ENABLED=0")
	packages, err := list.Output()
	if err != nil {
		t.Fatalf("list what the binary is made of: %v", err)
	}
	needed, kept := 0, strings.Split(string(text), "\n")
	for path := range strings.Lines(string(packages)) {
		inner, ours := strings.CutPrefix(strings.TrimSpace(path), module)
		if !ours {
			continue
		}
		needed++
		folder, _, _ := strings.Cut(inner, "/")
		if !slices.Contains(kept, "!"+folder) {
			t.Errorf("%s is kept out of the image's context: .dockerignore has no !%s", inner, folder)
		}
	}
	if needed < 10 {
		t.Errorf("packages of this module that the binary is made of: got %d, want all", needed)
	}
}

// Breaks it catches: a profile without its broker, an image that is another one tomorrow, a configuration that the
// relay refuses, or that names a host that is no service of the profile. Seen to fail with another host in nats.yaml,
// with redis:latest, and with a volume that is not declared.
func TestComposeProfilesHaveTheirBrokers(t *testing.T) {
	t.Parallel()
	composeProfiles := []string{"nats", "rabbitmq", "rabbitmq-stream", "redis", "bullmq", "webhook", "sqs"}
	var compose struct {
		Services map[string]struct {
			Image    string
			Profiles []string
			Volumes  []string
			Build    string
		}
		Volumes map[string]any
	}
	text, err := os.ReadFile("../../docker-compose.yml")
	if err == nil {
		err = yaml.Unmarshal(text, &compose)
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, service := range compose.Services {
		if _, tag, pinned := strings.Cut(service.Image, ":"); service.Build == "" && (!pinned || tag == "latest") {
			t.Errorf("service %s: the image %s has no tag of a version", name, service.Image)
		}
		for _, profile := range service.Profiles {
			if !slices.Contains(composeProfiles, profile) {
				t.Errorf("service %s: profile %s is not one of %v", name, profile, composeProfiles)
			}
		}
		for _, volume := range service.Volumes {
			from, _, _ := strings.Cut(volume, ":")
			if _, declared := compose.Volumes[from]; !declared && !strings.HasPrefix(from, "./") {
				t.Errorf("service %s: volume %s is not declared", name, from)
			}
		}
	}
	for _, profile := range composeProfiles {
		path := "../../deploy/compose/" + profile + ".yaml"
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		cfg, err := config.Load(config.Input{File: path, Text: text})
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		at, err := url.Parse(map[string]string{
			config.SinkNATS: cfg.NATS.URL, config.SinkRabbitMQ: cfg.RabbitMQ.URL, config.SinkRedisStream: cfg.Redis.URL,
			config.SinkRabbitMQStream: cfg.RabbitMQ.StreamURL, config.SinkBullMQ: cfg.Redis.URL,
			config.SinkWebhook: cfg.Webhook.URL, config.SinkSQS: cfg.SQS.Endpoint,
		}[cfg.Sink])
		if err != nil || !slices.Contains(compose.Services[at.Hostname()].Profiles, profile) {
			t.Errorf("%s: the broker is at %q, %v, which is no service of the profile", path, at, err)
		}
	}
}
