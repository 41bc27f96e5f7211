package harness

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// PeakRSS is the most memory that a running process has held, in bytes.
func PeakRSS(t testing.TB, pid int) int64 {
	t.Helper()
	peak, err := peakRSS(pid)
	if err != nil {
		t.Fatal(err)
	}
	return peak
}

// peakRSS reads VmHWM of proc(5).
func peakRSS(pid int) (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("read the memory of process %d: %w", pid, err)
	}
	for line := range strings.Lines(string(status)) {
		if rest, found := strings.CutPrefix(line, "VmHWM:"); found {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			if err != nil {
				return 0, fmt.Errorf("read the memory of process %d: %w", pid, err)
			}
			return kib << 10, nil
		}
	}
	return 0, fmt.Errorf("read the memory of process %d: no VmHWM", pid)
}

// LoadAverage is the machine's over 1, 5 and 15 minutes; unknown where there is none (proc(5), /proc/loadavg).
func LoadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(text))[:3], " ")
}

// CPU is the CPU time, user and system, that a process and those of its children that it has waited for have used
// (proc(5), /proc/pid/stat); 0 when it is gone.
func CPU(pid int) time.Duration {
	const clockTick = 10 * time.Millisecond // USER_HZ is 100 on every Linux that Go supports
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	ticks := 0
	for _, field := range fields[11:15] { // utime, stime, cutime, cstime
		n, _ := strconv.Atoi(field)
		ticks += n
	}
	return time.Duration(ticks) * clockTick
}
