package main

// switches is the package that woven code asks which of its changes is on. It exists only during a run, and is handed
// to the compiler with the woven files.
const switches = module + "/test/mutate/mutant"

// switchVariable says in the environment which one is on, where several runs go on at the same time.
const switchVariable = "CDC_RELAY_MUTANT"

// A file, not a variable of the environment, says which one is on: it reaches every process that a test starts.
const switchesText = `package mutant

import (
	"context"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
)

// Sites is how many there are.
const Sites = %d

var (
	on      = -1
	tracing bool
	trace   *os.File
	reached [Sites + 1]atomic.Bool
)

// "5": site 5 is changed. "trace FILE": none, and FILE gets the number of each site that is reached.
func init() {
	said := os.Getenv("CDC_RELAY_MUTANT")
	if said == "" {
		text, err := os.ReadFile(%q)
		if err != nil {
			return
		}
		said = strings.TrimSpace(string(text))
	}
	var err error
	if path, asked := strings.CutPrefix(said, "trace "); asked {
		if trace, err = os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666); err == nil {
			tracing = true
		}
		return
	}
	if on, err = strconv.Atoi(said); err != nil {
		on = -1
	}
}

func On(id int) bool {
	if tracing {
		note(id)
	}
	return id == on
}

//go:noinline
func note(id int) {
	if !reached[id].Load() && !reached[id].Swap(true) {
		_, _ = trace.WriteString(strconv.Itoa(id) + "\n")
	}
}

func SQL(id int, instead, text string) string {
	if tracing {
		return "/*switch " + strconv.Itoa(id) + "*/ " + text
	}
	if id == on {
		return strings.Replace(instead, "~", text, 1)
	}
	return text
}

type fileSite struct {
	name     string
	from, to int
	instead  string
}

func File(name string) func(text []byte, err error) ([]byte, error) {
	return func(text []byte, err error) ([]byte, error) {
		f, changed := fileSites[on]
		if err != nil || !changed || f.name != name {
			return text, err
		}
		instead := strings.Replace(f.instead, "~", string(text[f.from:f.to]), 1)
		return []byte(string(text[:f.from]) + instead + string(text[f.to:])), nil
	}
}

var sent = regexp.MustCompile("/[*]switch ([0-9]+)[*]/")

type noting struct{ net.Conn }

func (c noting) Write(b []byte) (int, error) {
	for _, m := range sent.FindAllSubmatch(b, -1) {
		if id, err := strconv.Atoi(string(m[1])); err == nil {
			note(id)
		}
	}
	return c.Conn.Write(b)
}

type dialer = func(ctx context.Context, network, address string) (net.Conn, error)

func Dial(dial dialer) dialer {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err != nil || !tracing {
			return c, err
		}
		return noting{c}, nil
	}
}
`
