package nats

import (
	"context"
	"errors"
	"fmt"
	"time"

	client "github.com/nats-io/nats.go"

	"github.com/cdc-relay/cdc-relay/internal/conditional"
	"github.com/cdc-relay/cdc-relay/sink"
)

func (d *Driver) learnSoon() {
	select {
	case d.news <- struct{}{}:
	default:
	}
}

// learn finds the streams of topics until the driver is closed.
func (d *Driver) learn() {
	again := time.NewTimer(0)
	defer again.Stop()
	for {
		select {
		case <-d.ended.Done():
			return
		case <-d.news:
		case <-again.C:
		}
		if d.learnAll() {
			again.Reset(learnAgain)
		}
	}
}

// learnAll asks for every topic that is not fresh. It reports whether one is left without a stream.
func (d *Driver) learnAll() (more bool) {
	d.mu.Lock()
	var names []string
	for name, t := range d.topics {
		if !t.fresh {
			names = append(names, name)
		}
	}
	d.mu.Unlock()
	if len(names) == 0 { // what is known then is whether the servers are there
		_, err := d.connection(d.ended)
		return err != nil
	}
	for _, name := range names {
		ctx, cancel := context.WithTimeout(d.ended, d.config.RequestTimeout)
		info, err := d.ask(ctx, name)
		if err == nil {
			err = d.resume(ctx, name, info.Config.Name)
		}
		cancel()
		if d.ended.Err() != nil {
			return false
		}
		d.learned(name, info, err)
		more = more || err != nil
	}
	return more
}

// ask finds the stream of a subject, or makes it.
func (d *Driver) ask(ctx context.Context, subject string) (info streamInfo, err error) {
	nc, err := d.connection(ctx)
	if err != nil {
		return info, err
	}
	name, err := d.find(ctx, nc, subject)
	if err != nil {
		return info, err
	}
	if name == "" {
		if name = d.config.Stream; name == "" {
			name = streamName(subject)
		}
		if err := createStream(ctx, nc, name, subject, d.config.NewStreams.Replicas); err != nil {
			return info, fmt.Errorf("create stream %s for %s: %w", name, subject, err)
		}
		if d.config.Hooks.StreamCreated != nil {
			d.config.Hooks.StreamCreated(name, subject)
		}
	}
	return askStream(ctx, nc, name)
}

// find finds the stream of a subject; "" is one that may be made.
func (d *Driver) find(ctx context.Context, nc *client.Conn, subject string) (name string, err error) {
	if problem := subjectProblem(subject); problem != "" {
		return "", &topicError{fmt.Sprintf("%q is not a subject: %s", subject, problem)}
	}
	name, err = streamOf(ctx, nc, subject)
	switch {
	case err != nil:
		return "", err
	case name == "" && !d.config.NewStreams.Create:
		return "", &topicError{fmt.Sprintf("no stream takes the subject %q. Make one: %s", subject,
			d.config.Command(subject))}
	case name != "" && d.config.Stream != "" && name != d.config.Stream:
		return "", &topicError{fmt.Sprintf("the subject %q goes to stream %s, and nats.stream is %s", subject, name,
			d.config.Stream)}
	}
	return name, nil
}

// Command returns the command that creates a stream for the topic.
func (c Config) Command(topic string) string {
	name := c.Stream
	if name == "" {
		name = streamName(topic)
	}
	replicas := max(c.NewStreams.Replicas, 1)
	return fmt.Sprintf("nats stream add %s --subjects '%s' --storage file --replicas %d --dupe-window 1s --defaults", name,
		topic, replicas)
}

// learned takes in what the servers said of a topic.
func (d *Driver) learned(name string, info streamInfo, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.topics[name]
	t.err = nil
	if _, waits := d.deferred[name]; waits && err == nil { // since it was looked for
		d.learnSoon()
		return
	}
	if err != nil {
		t.err = &trouble{sink.ClusterTrouble, err}
	} else {
		t.stream, t.fresh = d.streamNamed(info.Config.Name), true
		slow := info.Config.Replicas > 1 && !info.Config.Atomic
		if hook := d.config.Hooks.OneByOne; slow && !t.stream.slow && hook != nil {
			hook(info.Config.Name, info.Config.Replicas)
		}
		t.stream.maxSize, t.stream.batches, t.stream.slow = max(info.Config.MaxMsgSize, 0), info.Config.Atomic, slow
	}
	var told *topicError
	if err == nil || errors.As(err, &told) {
		d.told = time.Now()
	}
	d.announce()
}

// streamNamed is the stream of that name. d.mu is held.
func (d *Driver) streamNamed(name string) *stream {
	for _, s := range d.streams {
		if s.name == name {
			return s
		}
	}
	s := &stream{driver: d, name: name, node: int32(len(d.streams)), log: conditional.NewLog(&d.outboxes)}
	s.log.WentBack = func(was, is int64) { d.wentBack(s, was, is) }
	d.streams = append(d.streams, s)
	return s
}

// stale makes the topics of the stream be learned again.
func (d *Driver) stale(s *stream) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, t := range d.topics {
		if t.stream == s {
			t.fresh = false
		}
	}
	d.learnSoon()
}
