package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
)

// Set at release: -ldflags "-X main.version=v1.2.3 -X main.commit=abc1234".
var (
	version = ""
	commit  = ""
)

type versionCommand struct{}

func (versionCommand) Help() string {
	return "Prints version, commit, Go and the versions of the libraries that speak to Postgres and Kafka.\n\nExample:\n\n  cdc-relay version --json"
}

// namedLibraries are those whose versions matter in a bug report.
var namedLibraries = []string{
	"github.com/jackc/pgx/v5", "github.com/jackc/pglogrepl", "github.com/segmentio/kafka-go", "github.com/prometheus/client_golang", "github.com/rs/zerolog",
}

type buildFacts struct {
	Version   string            `json:"version"`
	Commit    string            `json:"commit"`
	Go        string            `json:"go"`
	Platform  string            `json:"platform"`
	Libraries map[string]string `json:"libraries"`
}

// readBuild prefers what the release set, then what the Go toolchain recorded.
func readBuild() buildFacts {
	facts := buildFacts{Version: version, Commit: commit, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, Libraries: map[string]string{}}
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

func (f *buildFacts) fill(info *debug.BuildInfo) {
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
			if s.Value == "true" && commit == "" {
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

// Run prints the version.
func (versionCommand) Run(a *app) error {
	facts := readBuild()
	if a.cli.JSON {
		return a.printJSON(facts)
	}
	fmt.Fprintf(a.out, "cdc-relay %s\ncommit    %s\ngo        %s %s\n", facts.Version, facts.Commit, facts.Go, facts.Platform)
	for _, path := range namedLibraries {
		if v, linked := facts.Libraries[path]; linked {
			fmt.Fprintf(a.out, "%s %s\n", path, v)
		}
	}
	return nil
}
