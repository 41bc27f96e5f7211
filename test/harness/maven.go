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
	return cached(name, func(aside, fetched string) error {
		maven, err := exec.LookPath("mvn")
		if err != nil {
			return fmt.Errorf("find Maven (Debian: maven): %w", err)
		}
		for _, g := range goals {
			args := append([]string{
				"-q", "-B", "-f", filepath.Join(moduleDir(), "test", pom, "pom.xml"),
				"-DoutputDirectory=" + filepath.Join(fetched, g.into),
				// of what is unpacked; otherwise they lie beside the pom, and the next fetch unpacks nothing
				"-DmarkersDirectory=" + filepath.Join(aside, "markers"),
			}, g.args...)
			if err := runFetch(ctx, maven, args...); err != nil {
				return err
			}
		}
		return nil
	})
}

// cached is a folder of the cache, which is collected at the first call on a machine: as fetched, with another place
// aside for what is not kept.
func cached(name string, collect func(aside, fetched string) error) (dir string, err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a cache directory: %w", err)
	}
	cache = filepath.Join(cache, "cdc-relay")
	dir = filepath.Join(cache, name)
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return dir, nil
	}
	return dir, fill(cache, dir, func(aside string) (fetched string, err error) {
		fetched = filepath.Join(aside, "fetched")
		return fetched, collect(aside, fetched)
	})
}

// runFetch runs a program that fetches.
func runFetch(ctx context.Context, program string, args ...string) error {
	command := exec.CommandContext(ctx, program, args...)
	command.WaitDelay = time.Second
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("run %s: %w: %.2000s", filepath.Base(program), err, output)
	}
	return nil
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
