package sink

import (
	"sync"
	"time"
)

// Contact tracks whether a driver's one server can be reached: since when not, or when it last answered.
// The zero value has heard nothing yet. All methods may be called at the same time.
type Contact struct {
	mu    sync.Mutex // guards what follows
	since time.Time  // when it could not be reached first; zero while it can
	err   error      // of the last attempt
	told  time.Time  // when it has answered last
}

// Reached notes that the server has answered, or that it could be connected to.
func (c *Contact) Reached() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.since, c.err, c.told = time.Time{}, nil, time.Now()
}

// Lost notes that the server could not be reached, and why.
func (c *Contact) Lost(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.since.IsZero() {
		c.since = time.Now()
	}
	c.err = err
}

// AnsweredSince reports whether the server can be reached and has answered after that time.
func (c *Contact) AnsweredSince(t time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err == nil && c.told.After(t)
}

// Unreachable says since when the server cannot be reached, and why; nil when it can.
func (c *Contact) Unreachable() (since time.Time, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.since, c.err
}
