package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// published holds the answers of a release server by path; latest is version 1.2.3.
type published map[string][]byte

const publishedArchive = "/download/v1.2.3/cdc-relay_1.2.3_linux_amd64.tar.gz"

// publish makes a release whose program is a script, for Linux on amd64, with the checksums that a release has.
func publish(t *testing.T) published {
	t.Helper()
	var archive bytes.Buffer
	zipped := gzip.NewWriter(&archive)
	files := tar.NewWriter(zipped)
	const program = "#!/bin/sh\necho this is 1.2.3\n"
	header := tar.Header{Name: "cdc-relay_1.2.3_linux_amd64/cdc-relay", Mode: 0o755, Size: int64(len(program))}
	if err := files.WriteHeader(&header); err != nil {
		t.Fatal(err)
	}
	if _, err := files.Write([]byte(program)); err != nil {
		t.Fatal(err)
	}
	if err := files.Close(); err != nil {
		t.Fatal(err)
	}
	if err := zipped.Close(); err != nil {
		t.Fatal(err)
	}
	other := strings.Repeat("0", 64)
	sums := fmt.Appendf(nil, "%[1]s  cdc-relay-demo_1.2.3_linux_amd64.tar.gz\n"+
		"%[1]s  cdc-relay_1.2.3_darwin_arm64.tar.gz\n%[2]x  cdc-relay_1.2.3_linux_amd64.tar.gz\n"+
		"%[1]s  cdc-relay_1.2.3_linux_amd64.tar.gz.spdx.json\n",
		other, sha256.Sum256(archive.Bytes()))
	return published{publishedArchive: archive.Bytes(),
		"/latest/download/SHA256SUMS": sums, "/download/v1.2.3/SHA256SUMS": sums}
}

// install runs install.sh against the release, on a machine of that architecture, and returns what it said and where
// the program should be.
func (p published) install(t *testing.T, machine string, args ...string) (said string, program string, err error) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		content, found := p[r.URL.Path]
		if !found {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(content)
	}))
	defer server.Close()
	tools, temporary := t.TempDir(), t.TempDir()
	uname := "#!/bin/sh\ncase $1 in -s) echo Linux ;; -m) echo " + machine + " ;; esac\n"
	if err := os.WriteFile(filepath.Join(tools, "uname"), []byte(uname), 0o755); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "some bin")
	script := exec.CommandContext(t.Context(), "sh",
		append([]string{"../../install.sh", "--base", server.URL, "--dir", dir}, args...)...)
	script.Env = []string{"PATH=" + tools + ":" + os.Getenv("PATH"), "TMPDIR=" + temporary, "HOME=" + temporary}
	output, err := script.CombinedOutput()
	for _, where := range []string{temporary, dir} {
		left, _ := os.ReadDir(where) // a directory that is not there holds nothing
		for _, entry := range left {
			if entry.Name() != "cdc-relay" {
				t.Errorf("install.sh left %s behind in %s", entry.Name(), where)
			}
		}
	}
	return string(output), filepath.Join(dir, "cdc-relay"), err
}

// Breaks it catches: a release that install.sh does not find or unpack, the wrong file of several, a program that
// cannot be run. Seen to fail with the archive's name taken from the first line of SHA256SUMS, and with the mode 600.
func TestInstallScriptInstallsARelease(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"--version", "1.2.3"}, {"--version", "v1.2.3"}} {
		said, program, err := publish(t).install(t, "x86_64", args...)
		if err != nil {
			t.Fatalf("install.sh %q: %v; it said:\n%s", args, err, said)
		}
		if got, err := exec.CommandContext(t.Context(), program).Output(); string(got) != "this is 1.2.3\n" {
			t.Errorf("install.sh %q: the installed program said %q, %v", args, got, err)
		}
		for _, want := range []string{"cdc-relay 1.2.3 for linux on amd64 is in " + program, "verified", "not in PATH"} {
			if !strings.Contains(said, want) {
				t.Errorf("install.sh %q said:\n%s\nwant in it %q", args, said, want)
			}
		}
	}
}

// Breaks it catches: a program installed that is not the release's, or anything unpacked of an archive that was not
// verified; a refusal that does not tell why. Seen to fail without the comparison (changed and cut archive), with the
// refusal of a missing checksum taken out, and with an architecture passed on as it is.
func TestInstallScriptInstallsNothingItCannotVerify(t *testing.T) {
	t.Parallel()
	const sums = "/latest/download/SHA256SUMS"
	for name, c := range map[string]struct {
		change  func(published)
		machine string
		args    []string
		want    string
	}{
		"changed archive": {change: func(p published) { p[publishedArchive][len(p[publishedArchive])-9] ^= 1 },
			want: "is not what the release lists"},
		"cut archive": {change: func(p published) { p[publishedArchive] = p[publishedArchive][:40] },
			want: "is not what the release lists"},
		"no archive": {change: func(p published) { delete(p, publishedArchive) }, want: "cannot be downloaded"},
		"no checksum": {
			change: func(p published) { p[sums] = bytes.ReplaceAll(p[sums], []byte("linux_amd64"), []byte("linux_386")) },
			want:   "has no checksum of an archive for linux on amd64"},
		"two checksums": {change: func(p published) { p[sums] = append(p[sums], p[sums]...) }, want: "several archives"},
		"no SHA256SUMS": {change: func(p published) { delete(p, sums) }, want: "no archive can be verified"},
		"architecture": {machine: "riscv64",
			want: "no archive for the architecture riscv64, only for amd64 and arm64"},
		"architecture without archive": {machine: "aarch64", want: "has no checksum of an archive for linux on arm64"},
		"absent version":               {args: []string{"--version", "9.9.9"}, want: "is 9.9.9 there?"},
		"unknown flag":                 {args: []string{"--prefix", "/opt"}, want: "--prefix is not known"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			release, machine := publish(t), "x86_64"
			if c.change != nil {
				c.change(release)
			}
			if c.machine != "" {
				machine = c.machine
			}
			said, program, err := release.install(t, machine, c.args...)
			if err == nil || !strings.Contains(said, c.want) {
				t.Errorf("install.sh: %v; it said:\n%s\nwant a refusal with %q", err, said, c.want)
			}
			if _, err := os.Stat(filepath.Dir(program)); !os.IsNotExist(err) {
				t.Errorf("%s: %v; want that nothing was made there", filepath.Dir(program), err)
			}
		})
	}
}
