package sink

import (
	"sync"
	"time"
)

// Contact tracks whether a driver's only server can be reached, and when it last answered. The zero value is ready to
// use. Methods may be called concurrently.
type Contact struct {
	mu    sync.Mutex // guards what follows
	since time.Time  // when it could not be reached first; zero while it can
	err   error      // of the last attempt
	told  time.Time  // when it has answered last
}

// Reached records that the server has answered or accepted a connection.
func (c *Contact) Reached() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.since, c.err, c.told = time.Time{}, nil, time.Now()
}

// Lost records that the server could not be reached, and why.
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

// Unreachable returns since when the server cannot be reached, and why; the error is nil if it can.
func (c *Contact) Unreachable() (since time.Time, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.since, c.err
}
