package harness

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// goal is a run of Maven's dependency plugin on a pom.
type goal struct {
	into string // folder that it fills, under that of the artifacts; "" = that itself
	args []string
}

// copyJars copies everything that the pom depends on, but archives.
func copyJars(into string) goal {
	return goal{into, []string{"dependency:copy-dependencies", "-DexcludeTypes=tar.gz"}}
}

// unpack unpacks the archives that the pom depends on.
func unpack(into string) goal {
	return goal{into, []string{"dependency:unpack-dependencies", "-DincludeTypes=tar.gz"}}
}

// fromMaven brings the artifacts of test/<pom>/pom.xml into a folder of the cache at the first call on a machine, and
// returns the folder. The name holds their version: a pom that changes needs another one.
func fromMaven(ctx context.Context, name, pom string, goals ...goal) (dir string, err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a cache directory: %w", err)
	}
	cache = filepath.Join(cache, "cdc-relay")
	dir = filepath.Join(cache, name)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return dir, fetch(ctx, cache, dir, filepath.Join(moduleDir(), "test", pom, "pom.xml"), goals)
	}
	return dir, nil
}

// fetch collects the artifacts of the pom.
func fetch(ctx context.Context, cache, dir, pom string, goals []goal) error {
	maven, err := exec.LookPath("mvn")
	if err != nil {
		return fmt.Errorf("find Maven (Debian: maven): %w", err)
	}
	return fill(cache, dir, func(aside string) (fetched string, err error) {
		fetched = filepath.Join(aside, "fetched")
		for _, g := range goals {
			args := append([]string{
				"-q", "-B", "-f", pom, "-DoutputDirectory=" + filepath.Join(fetched, g.into),
				// of what is unpacked; otherwise they lie beside the pom, and the next fetch unpacks nothing
				"-DmarkersDirectory=" + filepath.Join(aside, "markers"),
			}, g.args...)
			command := exec.CommandContext(ctx, maven, args...)
			command.WaitDelay = time.Second
			if output, err := command.CombinedOutput(); err != nil {
				return "", fmt.Errorf("run mvn: %w: %.2000s", err, output)
			}
		}
		return fetched, nil
	})
}

// fill has a folder of the cache filled aside and moves it into place whole, one test process at a time: the caches of
// those who fetch do not stand two at once.
func fill(cache, dir string, collect func(aside string) (fetched string, err error)) (err error) {
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return fmt.Errorf("make the cache directory: %w", err)
	}
	unlock, err := lockFile(filepath.Join(cache, "fetch.lock"))
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := os.Stat(dir); err == nil {
		return nil // another process was faster
	}
	aside, err := os.MkdirTemp(cache, "fetch-")
	if err != nil {
		return fmt.Errorf("make a directory to fetch into: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(aside)) }()
	fetched, err := collect(aside)
	if err != nil {
		return err
	}
	if err := os.Rename(fetched, dir); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("move what was fetched into place: %w", err)
	}
	return nil
}

// lockFile waits until no other process holds the lock; the function gives it back.
func lockFile(path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the lock: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), file.Close())
	}
	return func() { _ = file.Close() }, nil // closing unlocks
}
