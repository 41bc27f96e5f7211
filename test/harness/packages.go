package harness

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// NodePackages is a folder with the packages of packages/typescript, unpacked from their tarballs, and the peers beside
// them. It is built at the first call on a machine for these sources.
func NodePackages(t testing.TB) (dir string) {
	t.Helper()
	needsServers(t)
	Program(t, "node", "nodejs")
	npm := Program(t, "npm", "npm")
	sources := filepath.Join(moduleDir(), "packages", "typescript")
	peers, err := cached("packages-node-"+digestOf(t, sources, ".json"), func(_, fetched string) error {
		return fetchNode(t.Context(), npm, sources, fetched)
	})
	if err == nil {
		dir, err = cached("packages-node-"+digestOf(t, sources, ""), func(aside, built string) error {
			return buildNode(t.Context(), npm, sources, peers, aside, built)
		})
	}
	if err != nil {
		missing(t, "what packages/typescript builds", err)
	}
	return dir
}

// fetchNode brings what the lock file names.
func fetchNode(ctx context.Context, npm, sources, into string) error {
	if err := copySources(sources, into, ".json"); err != nil {
		return err
	}
	return runIn(ctx, into, npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error")
}

func buildNode(ctx context.Context, npm, sources, peers, aside, built string) error {
	if err := copySources(sources, built, ""); err != nil {
		return err
	}
	modules := filepath.Join(built, "node_modules")
	if err := linkAll(filepath.Join(peers, "node_modules"), modules, "@cdc-relay"); err != nil {
		return err
	}
	scope := filepath.Join(modules, "@cdc-relay")
	if err := os.Mkdir(scope, 0o755); err != nil {
		return err
	}
	for _, name := range []string{"emit", "inbox", "testing"} { // the build finds its siblings there
		if err := os.Symlink(filepath.Join("..", "..", name), filepath.Join(scope, name)); err != nil {
			return err
		}
	}
	if err := runIn(ctx, built, npm, "run", "build"); err != nil {
		return err
	}
	if err := runIn(ctx, built, npm, "pack", "--workspaces", "--loglevel=error"); err != nil {
		return err
	}
	for _, name := range []string{"emit", "inbox", "testing"} {
		tarballs, err := filepath.Glob(filepath.Join(built, "cdc-relay-"+name+"-*.tgz"))
		if err != nil || len(tarballs) != 1 {
			return fmt.Errorf("npm pack made %d tarballs of %s: %w", len(tarballs), name, err)
		}
		if err := os.Remove(filepath.Join(scope, name)); err != nil {
			return err
		}
		if err := runIn(ctx, aside, "tar", "-xzf", tarballs[0]); err != nil {
			return err
		}
		if err := os.Rename(filepath.Join(aside, "package"), filepath.Join(scope, name)); err != nil {
			return err
		}
	}
	return nil
}

// linkAll links what a folder has into another one, except a name.
func linkAll(from, to, except string) error {
	if err := os.Mkdir(to, 0o755); err != nil {
		return err
	}
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.Name() == except {
			continue
		}
		if err := os.Symlink(filepath.Join(from, entry.Name()), filepath.Join(to, entry.Name())); err != nil {
			return err
		}
	}
	return nil
}

func runIn(ctx context.Context, dir, program string, args ...string) error {
	command := exec.CommandContext(ctx, program, args...)
	command.Dir = dir
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("run %s %s: %w: %.2000s", filepath.Base(program), args[0], err, output)
	}
	return nil
}

// made are folders that builds make beside sources, and that of the driver, which is not built.
var made = []string{"node_modules", "dist", "build", "target", "__pycache__", "driver"}

// eachSource calls f with the files below a folder that no build made, those with the ending.
func eachSource(dir, ending string, f func(path, relative string) error) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case path != dir && entry.IsDir() && (slices.Contains(made, entry.Name()) ||
			filepath.Ext(entry.Name()) == ".egg-info"):
			return fs.SkipDir
		case entry.IsDir() || !entry.Type().IsRegular() || !strings.HasSuffix(path, ending):
			return nil
		}
		relative, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		return f(path, relative)
	})
}

func copySources(from, to, ending string) error {
	return eachSource(from, ending, func(path, relative string) error {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		into := filepath.Join(to, relative)
		if err := os.MkdirAll(filepath.Dir(into), 0o755); err != nil {
			return err
		}
		return os.WriteFile(into, text, 0o644)
	})
}

func digestOf(t testing.TB, dir, ending string) string {
	t.Helper()
	digest := sha256.New()
	_, _ = fmt.Fprintln(digest, ending)
	err := eachSource(dir, ending, func(path, relative string) error {
		text, err := os.ReadFile(path)
		_, _ = fmt.Fprintf(digest, "%s %d\n%s", relative, len(text), text)
		return err
	})
	if err != nil {
		t.Fatalf("read %s: %v", dir, err)
	}
	return hex.EncodeToString(digest.Sum(nil))[:12]
}

// PythonPackages is the search path for the packages of packages/python, installed from their wheels, and the peers
// beside them. They are built at the first call on a machine for these sources.
func PythonPackages(t testing.TB) (path string) {
	t.Helper()
	needsServers(t)
	python := Program(t, "python3", "python3")
	sources := filepath.Join(moduleDir(), "packages", "python")
	install := []string{"-m", "pip", "install", "-q", "--no-input", "--disable-pip-version-check", "--target"}
	peers, err := cached("packages-python-"+digestOf(t, sources, ".txt"), func(_, fetched string) error {
		return runIn(t.Context(), sources, python, append(install, fetched, "-r", "requirements.txt")...)
	})
	if err != nil {
		missing(t, "what packages/python/requirements.txt names", err)
	}
	built, err := cached("packages-python-"+digestOf(t, sources, ""), func(aside, fetched string) error {
		copied := filepath.Join(aside, "sources")
		if err := copySources(sources, copied, ""); err != nil {
			return err
		}
		// The wheels are kept beside what was installed from them.
		wheels := filepath.Join(fetched, "wheels")
		err := runIn(t.Context(), copied, "env", "PYTHONPATH="+peers, python, "-m", "pip", "wheel", "-q", "--no-deps",
			"--no-build-isolation", "--disable-pip-version-check", "-w", wheels, "./emit", "./inbox")
		if err != nil {
			return err
		}
		files, err := filepath.Glob(filepath.Join(wheels, "*.whl"))
		if err != nil || len(files) != 2 {
			return fmt.Errorf("pip made %d wheels, want 2: %w", len(files), err)
		}
		return runIn(t.Context(), copied, python, append(append(install, fetched, "--no-deps"), files...)...)
	})
	if err != nil {
		t.Fatalf("build packages/python: %v", err)
	}
	return built + ":" + peers
}

// JavaPackages is the class path for the packages of packages/java, as Maven packs them, the peers beside them, and the
// contract's driver, compiled. They are built at the first call on a machine for these sources.
func JavaPackages(t testing.TB) (classpath string) {
	t.Helper()
	needsServers(t)
	sources := filepath.Join(moduleDir(), "packages", "java")
	return javaProgram(t, filepath.Join(sources, "peers.xml"), filepath.Join(sources, "driver"), "Driver.java")
}

// SpringPackages is the class path for the starter of packages/java, a version of Spring Boot with what goes with it,
// and the test's program, testshop.Shop.
func SpringPackages(t testing.TB, boot, modulith string) (classpath string) {
	t.Helper()
	needsServers(t)
	driver := filepath.Join(moduleDir(), "packages", "java", "spring", "driver")
	return javaProgram(t, filepath.Join(driver, "pom.xml"), driver, filepath.Join("testshop", "Shop.java"),
		"-Dboot="+boot, "-Dmodulith="+modulith)
}

// javaProgram builds the packages, brings the peers that a pom names, and compiles a program against both.
func javaProgram(t testing.TB, pom, dir, program string, options ...string) (classpath string) {
	t.Helper()
	maven, javac := Program(t, "mvn", "maven"), Program(t, "javac", "openjdk-17-jdk-headless")
	sources := filepath.Join(moduleDir(), "packages", "java")
	chosen := strings.ReplaceAll(strings.Join(options, ""), "=", "-")
	peers, err := cached("packages-java-"+digestOf(t, filepath.Dir(pom), filepath.Base(pom))+chosen,
		func(_, fetched string) error {
			return runIn(t.Context(), sources, maven, append([]string{"-q", "-B", "-f", pom,
				"dependency:copy-dependencies", "-DoutputDirectory=" + fetched}, options...)...)
		})
	var jars string
	if err == nil {
		jars, err = cached("packages-java-"+digestOf(t, sources, ""), func(aside, built string) error {
			return buildJava(t.Context(), maven, sources, aside, built)
		})
	}
	if err != nil {
		missing(t, "what packages/java builds", err)
	}
	classpath = filepath.Join(jars, "*") + ":" + filepath.Join(peers, "*")
	name := filepath.Base(jars) + "-driver-" + digestOf(t, dir, "") + chosen
	classes, err := cached(name, func(_, built string) error {
		return runIn(t.Context(), dir, javac, "-Xlint:all,-processing,-classfile", "-Werror", "-parameters",
			"-cp", classpath, "-d", built, "-sourcepath", ".", program)
	})
	if err != nil {
		t.Fatalf("compile %s of packages/java: %v", program, err)
	}
	return classes + ":" + classpath
}

func buildJava(ctx context.Context, maven, sources, aside, built string) error {
	copied := filepath.Join(aside, "sources")
	if err := copySources(sources, copied, ""); err != nil {
		return err
	}
	if err := runIn(ctx, copied, maven, "-q", "-B", "package"); err != nil {
		return err
	}
	if err := os.MkdirAll(built, 0o755); err != nil {
		return err
	}
	packed, err := filepath.Glob(filepath.Join(copied, "*", "target", "*.jar"))
	if err != nil || len(packed) == 0 {
		return fmt.Errorf("maven packed nothing: %w", err)
	}
	for _, jar := range packed {
		if err := os.Rename(jar, filepath.Join(built, filepath.Base(jar))); err != nil {
			return err
		}
	}
	return nil
}

// JavaRepository is a local repository of Maven with the packages of packages/java installed, as they are now.
func JavaRepository(t testing.TB) (dir string) {
	t.Helper()
	maven := Program(t, "mvn", "maven")
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	dir, copied := filepath.Join(cache, "cdc-relay", "maven"), t.TempDir()
	if err := copySources(filepath.Join(moduleDir(), "packages", "java"), copied, ""); err != nil {
		t.Fatal(err)
	}
	if err := runIn(t.Context(), copied, maven, "-q", "-B", "-Dmaven.repo.local="+dir, "install"); err != nil {
		missing(t, "what packages/java needs", err)
	}
	return dir
}
