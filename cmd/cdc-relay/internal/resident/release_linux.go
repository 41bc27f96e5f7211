package resident

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// mapping is a part of the address space, as smaps of proc(5) lists it.
type mapping struct {
	from, to    uintptr
	permissions string
	path        string
	own         bool // some pages may be no longer the file's: relocated, or with a debugger's breakpoint
}

func release() error {
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("find the program file: %w", err)
	}
	mappings, err := list("/proc/self/smaps")
	if err != nil {
		return err
	}
	for _, m := range mappings {
		if !m.releasable(program) {
			continue
		}
		_, _, errno := syscall.Syscall(syscall.SYS_MADVISE, m.from, m.to-m.from, syscall.MADV_DONTNEED)
		if errno != 0 {
			return fmt.Errorf("give back the pages of %s: %w", program, errno)
		}
	}
	return nil
}

// releasable reports whether the file has all that lies in the mapping.
func (m mapping) releasable(program string) bool {
	return m.path == program && !strings.Contains(m.permissions, "w") && !m.own
}

// list reads smaps: for each mapping a line with its place, and one for each figure of it.
func list(path string) (all []mapping, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("list the process's memory: %w", err)
	}
	defer func() { _ = file.Close() }()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		switch {
		case len(fields) >= 5 && strings.Contains(fields[0], "-"):
			m, err := parse(fields)
			if err != nil {
				return nil, err
			}
			all = append(all, m)
		case len(fields) == 3 && fields[0] == "Anonymous:" && len(all) > 0:
			all[len(all)-1].own = fields[1] != "0"
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("list the process's memory: %w", err)
	}
	return all, nil
}

// parse reads 00400000-010c1000 r-xp 00000000 fe:00 1234 /usr/bin/cdc-relay.
func parse(fields []string) (mapping, error) {
	from, to, _ := strings.Cut(fields[0], "-")
	first, err := strconv.ParseUint(from, 16, 64)
	if err != nil {
		return mapping{}, fmt.Errorf("read a mapping's place %q: %w", fields[0], err)
	}
	end, err := strconv.ParseUint(to, 16, 64)
	if err != nil {
		return mapping{}, fmt.Errorf("read a mapping's place %q: %w", fields[0], err)
	}
	return mapping{uintptr(first), uintptr(end), fields[1], strings.Join(fields[5:], " "), true}, nil
}
