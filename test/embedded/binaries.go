package embedded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"time"

	bundle "github.com/fergusstrange/embedded-postgres"
)

// oldestMajor is the oldest Postgres that the relay works with.
const oldestMajor = 14

// systemPatterns is where distributions put Postgres's server programs: Debian and its kin, Red Hat and its kin.
var systemPatterns = []string{"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin"}

// bundles are the downloadable versions by major; the module's version pins them.
var bundles = map[int]bundle.PostgresVersion{14: bundle.V14, 15: bundle.V15, 16: bundle.V16, 17: bundle.V17,
	18: bundle.V18}

// defaultBundle is downloaded when any major version will do.
const defaultBundle = 17

// binaries is a directory with Postgres's server programs.
type binaries struct {
	dir   string
	major int
}

func (b binaries) initdb() string   { return filepath.Join(b.dir, "initdb") }
func (b binaries) postgres() string { return filepath.Join(b.dir, "postgres") }

// findBinaries follows the order that StartPostgres documents.
func findBinaries(ctx context.Context, c PostgresConfig) (binaries, error) {
	wanted := 0
	if c.Version != "" {
		major, err := strconv.Atoi(c.Version)
		if err != nil || major < oldestMajor {
			return binaries{}, fmt.Errorf("version %q of Postgres is not supported: want a major version from %d", c.Version,
				oldestMajor)
		}
		wanted = major
	}
	if c.BinDir != "" {
		return binariesIn(ctx, c.BinDir, wanted)
	}
	if found, ok := installedBinaries(ctx, wanted); ok {
		return found, nil
	}
	if wanted == 0 {
		wanted = defaultBundle
	}
	return bundledBinaries(ctx, wanted)
}

// installedBinaries looks for what this machine has; the newest of the system's directories first.
func installedBinaries(ctx context.Context, wanted int) (binaries, bool) {
	var found []binaries
	for _, pattern := range systemPatterns {
		dirs, _ := filepath.Glob(pattern) // the only error is a malformed pattern
		for _, dir := range dirs {
			if b, err := binariesIn(ctx, dir, wanted); err == nil {
				found = append(found, b)
			}
		}
	}
	if len(found) > 0 {
		return slices.MaxFunc(found, func(a, b binaries) int { return a.major - b.major }), true
	}
	if path, err := exec.LookPath("postgres"); err == nil {
		if b, err := binariesIn(ctx, filepath.Dir(path), wanted); err == nil {
			return b, true
		}
	}
	return binaries{}, false
}

var versionPattern = regexp.MustCompile(`\(PostgreSQL\) ([0-9]+)`)

// binariesIn checks that dir has both programs, of the wanted major version (0 = any that is supported).
func binariesIn(ctx context.Context, dir string, wanted int) (binaries, error) {
	b := binaries{dir: dir}
	for _, program := range []string{b.initdb(), b.postgres()} {
		if _, err := os.Stat(program); err != nil {
			return b, fmt.Errorf("find Postgres's programs: %w", err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	output, err := exec.CommandContext(ctx, b.postgres(), "--version").Output()
	if err != nil {
		return b, fmt.Errorf("ask %s for its version: %w", b.postgres(), err)
	}
	match := versionPattern.FindSubmatch(output)
	if match == nil {
		return b, fmt.Errorf("ask %s for its version: got %.80q", b.postgres(), output)
	}
	b.major, _ = strconv.Atoi(string(match[1]))
	if b.major < oldestMajor || wanted != 0 && b.major != wanted {
		want := strconv.Itoa(wanted)
		if wanted == 0 {
			want = fmt.Sprintf("at least %d", oldestMajor)
		}
		return b, fmt.Errorf("the Postgres in %s is version %d, want %s", dir, b.major, want)
	}
	return b, nil
}

// bundledBinaries unpacks a bundle into the cache, downloading it before if need be.
func bundledBinaries(ctx context.Context, major int) (binaries, error) {
	version, known := bundles[major]
	if !known {
		return binaries{},
			fmt.Errorf("no Postgres %d is installed and none can be downloaded: install it, or want one of 14 to 18", major)
	}
	cache, err := cacheDir()
	if err != nil {
		return binaries{}, err
	}
	unpacked := filepath.Join(cache, "postgres-"+string(version))
	if b, err := binariesIn(ctx, filepath.Join(unpacked, "bin"), major); err == nil {
		return b, nil
	}
	if err := download(ctx, version, cache, unpacked); err != nil {
		return binaries{}, fmt.Errorf("get a bundle of Postgres %s: %w", version, err)
	}
	return binariesIn(ctx, filepath.Join(unpacked, "bin"), major)
}

// download lets the embedded-postgres module fetch, check and unpack its bundle; what it unpacked is all that is used
// of it. Its own launcher cannot run as root and leaves servers behind when this process is killed. So its Start may
// fail or succeed: what counts is whether the programs are there. It unpacks aside and the result is moved into place,
// so that a broken or concurrent download is never taken for a whole one.
func download(ctx context.Context, version bundle.PostgresVersion, cache, unpacked string) (err error) {
	aside, err := os.MkdirTemp(cache, "unpack-")
	if err != nil {
		return fmt.Errorf("make a directory to unpack in: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(aside)) }()
	if err := os.Chmod(aside, 0o755); err != nil {
		return fmt.Errorf("open the directory to unpack in: %w", err)
	}
	port, err := FreePort()
	if err != nil {
		return err
	}
	programs := filepath.Join(aside, "programs")
	server := bundle.NewDatabase(bundle.DefaultConfig().Version(version).Port(uint32(port)).
		CachePath(aside).RuntimePath(filepath.Join(aside, "run")).BinariesPath(programs).Logger(io.Discard))
	defer http.DefaultClient.CloseIdleConnections() // by which the module downloads, and which it leaves open
	ended := make(chan error, 1)
	go func() {
		err := server.Start()
		if err == nil {
			err = server.Stop()
		}
		ended <- err
	}()
	var startErr error
	select {
	case startErr = <-ended:
	case <-ctx.Done(): // the module cannot be interrupted: let it end before its directory goes
		return errors.Join(ctx.Err(), <-ended)
	}
	if _, err := binariesIn(ctx, filepath.Join(programs, "bin"), 0); err != nil {
		return errors.Join(startErr, err)
	}
	if err := os.Rename(programs, unpacked); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("move the programs into place: %w", err)
	}
	return nil
}

// cacheDir is where bundles are kept. Root's own cache is in root's home, where the server's user cannot go.
func cacheDir() (string, error) {
	dir := "/var/cache"
	if os.Geteuid() != 0 {
		var err error
		if dir, err = os.UserCacheDir(); err != nil {
			return "", fmt.Errorf("find a cache directory for Postgres: %w", err)
		}
	}
	dir = filepath.Join(dir, "cdc-relay")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make a cache directory for Postgres: %w", err)
	}
	return dir, nil
}
