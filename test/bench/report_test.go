package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/bench"
)

// sample is one measured value of one run.
type sample struct {
	name  string // what, with its unit
	value float64
	mark  mark // what was hoped for; the zero value = nothing
}

// mark is a bound that a median is compared with. Missing it fails nothing: the machine may be busy.
type mark struct {
	atLeast, atMost float64 // 0 = no bound
}

func (m mark) String() string {
	switch {
	case m.atLeast != 0:
		return fmt.Sprintf(">= %v", m.atLeast)
	case m.atMost != 0:
		return fmt.Sprintf("<= %v", m.atMost)
	}
	return ""
}

func (m mark) met(v float64) bool { return v >= m.atLeast && (m.atMost == 0 || v <= m.atMost) }

// figure is one value over all runs of a scenario.
type figure struct {
	Name   string    `json:"name"`
	Median float64   `json:"median"`
	Min    float64   `json:"min"`
	Max    float64   `json:"max"`
	Runs   []float64 `json:"runs"`
	Mark   string    `json:"mark,omitempty"`
	Met    *bool     `json:"met,omitempty"`
}

type scenario struct {
	Name    string   `json:"name"`
	What    string   `json:"what"`
	Failed  int      `json:"failed_runs"`
	Figures []figure `json:"figures"`
}

// result is everything that was measured, with what a reader needs to judge it.
type result struct {
	When     time.Time         `json:"when"`
	Commit   string            `json:"commit"`
	Machine  machine           `json:"machine"`
	Postgres map[string]string `json:"postgres,omitempty"`
	Kafka    string            `json:"kafka"`
	Rival    string            `json:"rival,omitempty"`
	Relay    string            `json:"relay_settings"` // other than the defaults, by -set
	// before the first and after the last run: more than 1-2 means that others used the machine too
	Load      []string   `json:"load_average"`
	Scenarios []scenario `json:"scenarios"`
}

type machine struct {
	CPUs   int    `json:"cpus"`
	Model  string `json:"model"`
	Kernel string `json:"kernel"`
	Go     string `json:"go"`
}

// add makes figures of the runs of a scenario: runs that failed are not among them.
func (r *result) add(name, what string, runs [][]sample, failed int) {
	s := scenario{Name: name, What: what, Failed: failed}
	if len(runs) > 0 {
		for n, first := range runs[0] {
			f := figure{Name: first.name, Mark: first.mark.String()}
			for _, run := range runs {
				f.Runs = append(f.Runs, round(run[n].value))
			}
			over := bench.Summarize(f.Runs)
			f.Median, f.Min, f.Max = over.Median, over.Min, over.Max
			if f.Mark != "" {
				met := first.mark.met(f.Median)
				f.Met = &met
			}
			s.Figures = append(s.Figures, f)
		}
	}
	r.Scenarios = append(r.Scenarios, s)
}

// round keeps four digits: more would be noise.
func round(v float64) float64 {
	if v == 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return 0
	}
	scale := math.Pow(10, 3-math.Floor(math.Log10(math.Abs(v))))
	return math.Round(v*scale) / scale
}

func (r *result) find(name string) (scenario, bool) {
	for _, s := range r.Scenarios {
		if s.Name == name && len(s.Figures) > 0 {
			return s, true
		}
	}
	return scenario{}, false
}

func (r *result) print(w io.Writer) {
	fmt.Fprintf(w, "\n%s, commit %s, %d × %s, %s, Linux %s\n", r.When.Format(time.DateTime), r.Commit, r.Machine.CPUs,
		r.Machine.Model, r.Machine.Go, r.Machine.Kernel)
	if r.Postgres != nil {
		fmt.Fprintf(w, "PostgreSQL %s, fsync %s, synchronous_commit %s, shared_buffers %s\n", r.Postgres["server_version"],
			r.Postgres["fsync"],
			r.Postgres["synchronous_commit"], r.Postgres["shared_buffers"])
	}
	fmt.Fprintf(w, "Kafka %s\n", r.Kafka)
	if r.Rival != "" {
		fmt.Fprintln(w, r.Rival)
	}
	if r.Relay != "" {
		fmt.Fprintf(w, "relay settings: %s\n", r.Relay)
	}
	fmt.Fprintf(w, "load average before and after: %s\n", strings.Join(r.Load, "; "))
	for _, s := range r.Scenarios {
		fmt.Fprintf(w, "\n%s: %s\n", s.Name, s.What)
		if s.Failed > 0 {
			fmt.Fprintf(w, "%d RUNS FAILED\n", s.Failed)
		}
		table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintf(table, "median\tmin\tmax\tmark\t \t  what\n")
		for _, f := range s.Figures {
			verdict := ""
			if f.Met != nil {
				verdict = map[bool]string{true: "met", false: "MISSED"}[*f.Met]
			}
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t  %s\n", bench.Number(f.Median), bench.Number(f.Min), bench.Number(f.Max),
				f.Mark, verdict, f.Name)
		}
		_ = table.Flush() // stdout
	}
}

func (r *result) write(path string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err == nil {
		err = os.WriteFile(path, append(text, '\n'), 0o644)
	}
	if err != nil {
		return fmt.Errorf("write the results: %w", err)
	}
	return nil
}

func thisMachine() machine {
	m := machine{CPUs: runtime.NumCPU(), Go: runtime.Version(), Kernel: firstLine("/proc/sys/kernel/osrelease")}
	text, _ := os.ReadFile("/proc/cpuinfo") // absent: no name
	for line := range strings.Lines(string(text)) {
		if name, found := strings.CutPrefix(line, "model name"); found {
			m.Model = strings.TrimSpace(strings.TrimLeft(name, "\t :"))
			break
		}
	}
	return m
}

func firstLine(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return "unknown"
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return line
}

// commit is the version that is measured; + = with changes that are not committed.
func commit() string {
	head, err := exec.Command("git", "describe", "--always", "--dirty=+").Output()
	if err != nil {
		return "unknown" // not in a clone
	}
	return strings.TrimSpace(string(head))
}
