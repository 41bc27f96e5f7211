package cli

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"slices"
)

// namedLibraries are those whose versions matter in a bug report.
var namedLibraries = []string{
	"github.com/jackc/pgx/v5", "github.com/jackc/pglogrepl", "github.com/segmentio/kafka-go",
	"github.com/prometheus/client_golang", "github.com/rs/zerolog",
}

// Facts describe a program for bug reports.
type Facts struct {
	Version   string            `json:"version"`
	Commit    string            `json:"commit"`
	Go        string            `json:"go"`
	Platform  string            `json:"platform"`
	Libraries map[string]string `json:"libraries"`
}

// Build is set by a release: -ldflags "-X main.version=v1.2.3 -X main.commit=abc1234".
type Build struct{ Version, Commit string }

// Facts prefers what the release set, then what the Go toolchain recorded.
func (b Build) Facts() Facts {
	facts := Facts{Version: b.Version, Commit: b.Commit, Go: runtime.Version(),
		Platform: runtime.GOOS + "/" + runtime.GOARCH, Libraries: map[string]string{}}
	info, ok := debug.ReadBuildInfo()
	if ok {
		facts.fill(info)
	}
	if facts.Version == "" {
		facts.Version = "dev"
	}
	if facts.Commit == "" {
		facts.Commit = "unknown"
	}
	return facts
}

func (f *Facts) fill(info *debug.BuildInfo) {
	released := f.Commit != ""
	if f.Version == "" && info.Main.Version != "(devel)" {
		f.Version = info.Main.Version
	}
	modified := ""
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			if f.Commit == "" {
				f.Commit = s.Value
			}
		case "vcs.modified":
			if s.Value == "true" && !released {
				modified = "+modified"
			}
		}
	}
	if f.Commit != "" {
		f.Commit += modified
	}
	for _, module := range info.Deps {
		if slices.Contains(namedLibraries, module.Path) {
			f.Libraries[module.Path] = module.Version
		}
	}
}

// Print writes the facts for people.
func (f Facts) Print(w io.Writer, name string) {
	fmt.Fprintf(w, "%s %s\ncommit    %s\ngo        %s %s\n", name, f.Version, f.Commit, f.Go, f.Platform)
	for _, path := range namedLibraries {
		if v, linked := f.Libraries[path]; linked {
			fmt.Fprintf(w, "%s %s\n", path, v)
		}
	}
}
