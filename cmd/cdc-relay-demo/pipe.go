package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"sync"

	"github.com/cdc-relay/cdc-relay/relay"
)

// The demo and its relay are two processes. They talk by the relay's standard input and output, one line of JSON each
// time: no port and no secret of its own, and an end of the input ends the relay.

// scene is sent to the relay, for its console, whenever it changes.
type scene struct {
	Incidents []choice `json:"incidents"`
	Playing   string   `json:"playing"` // the name of an incident, or of all; empty: nothing is broken
	Told      []told   `json:"told"`    // oldest first
}

// choice is an incident that the console offers.
type choice struct {
	Name  string `json:"name"`
	Label string `json:"label"`
}

// told is an incident in two lines.
type told struct {
	Label   string `json:"label"`
	At      string `json:"at"` // RFC 3339
	Happens string `json:"happens"`
	Over    string `json:"over"` // empty while it lasts
	Failed  bool   `json:"failed"`
}

// report comes from the relay: what its console asks for, or its figures.
type report struct {
	Break   string   `json:"break,omitempty"` // the name of an incident, or all
	Figures *figures `json:"figures,omitempty"`
}

// figures are the part of the relay's status that the demo shows.
type figures struct {
	Role     relay.Role `json:"role"`
	LagBytes *int64     `json:"lag_bytes"`
	Backlog  *int64     `json:"backlog"`
}

func figuresOf(s relay.Status) figures { return figures{s.Role, s.LagBytes, s.Backlog} }

// sender writes lines of JSON to the other process.
type sender struct {
	mu sync.Mutex // held while a line is written
	to io.Writer
}

func (s *sender) send(v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode a line for the other process: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.to.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("write to the other process: %w", err)
	}
	return nil
}

// receive calls each with every line until the input ends. A line that is cut off by a kill is dropped.
func receive[T any](from io.Reader, each func(T)) {
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var v T
		if json.Unmarshal(line, &v) == nil {
			each(v)
		}
	}
}
