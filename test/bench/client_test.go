package bench

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime/pprof"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// clientVariable holds the orders of a process that is one client: its CPU time is that client's alone.
const clientVariable = "CDC_RELAY_BENCH_CLIENT"

// orders say what a client process produces.
type orders struct {
	Client      string
	Brokers     []string
	Topic       string
	WarmUp      int // records that are not measured, as fast as it goes: connections, producer id, heap
	Records     int // those that are
	Rate        int // of these per second; 0 = as fast as it goes
	Payload     int // bytes of a value
	Keys        int
	Outstanding int    // records handed over and not acknowledged, at most
	Profile     string // file for a CPU profile of the measured part; "" = none
}

// outcome is the cost of a run.
type outcome struct {
	Seconds       float64 // from the first hand-over to the last acknowledgement
	CPU           float64 // seconds of this process in the meantime, user and system (getrusage)
	P50, P99, Max float64 // milliseconds from hand-over to acknowledgement; 0 without a rate
}

// producer is a client under measure.
type producer interface {
	// send hands over the records first to first+n-1 and waits only for room.
	send(first, n int) error
	close() error
}

// producers are the clients by name.
var producers = map[string]func(*desk) (producer, error){
	"sink":         newSinkProducer,
	"franz":        newFranzProducer,
	"franz-linger": newLingeringFranzProducer,
	"writer":       newWriterProducer,
}

// javaClient is Kafka's own producer, a program of its own: Producer.java.
const javaClient = "java"

// desk is shared by all clients: the records' content, and the acknowledged ones.
type desk struct {
	orders
	keys, values [][]byte

	handed, acked []time.Duration // since base, by record; nil when latency is not measured
	base          time.Time
	mu            sync.Mutex
	failure       error // the first; guarded by mu
	count         atomic.Int64
	wanted        atomic.Int64
	all           chan struct{} // holds a token when count has reached wanted, or something failed
}

func newDesk(o orders) *desk {
	d := &desk{orders: o, base: time.Now(), all: make(chan struct{}, 1)}
	for n := range o.Keys {
		d.keys = append(d.keys, fmt.Appendf(nil, "018f3a5e-0000-7000-8000-%012d", n))
	}
	for n := range 4096 {
		value := make([]byte, o.Payload)
		for i := range value {
			value[i] = byte('a' + (i*7+n)%26)
		}
		d.values = append(d.values, value)
	}
	return d
}

func (d *desk) key(n int) []byte   { return d.keys[n%len(d.keys)] }
func (d *desk) value(n int) []byte { return d.values[n%len(d.values)] }

// note writes down when a record was acknowledged.
func (d *desk) note(n int, at time.Time) {
	if d.acked != nil {
		d.acked[n] = at.Sub(d.base)
	}
}

// done counts acknowledged records.
func (d *desk) done(n int) {
	if d.count.Add(int64(n)) == d.wanted.Load() {
		d.end()
	}
}

func (d *desk) end() {
	select {
	case d.all <- struct{}{}:
	default:
	}
}

func (d *desk) fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.failure == nil {
		d.failure = err
	}
	d.end()
}

// wait waits until all that was wanted is acknowledged.
func (d *desk) wait() error {
	select {
	case <-d.all:
	case <-time.After(5 * time.Minute):
		return fmt.Errorf("got %d of %d acknowledged in 5 minutes", d.count.Load(), d.wanted.Load())
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.failure
}

// runClient is the client process: it returns its exit code.
func runClient(text string) int {
	var o orders
	err := json.Unmarshal([]byte(text), &o)
	var r outcome
	if err == nil {
		r, err = o.run()
	}
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(r)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "client:", err)
		return 1
	}
	return 0
}

func (o orders) run() (r outcome, err error) {
	d := newDesk(o)
	p, err := producers[o.Client](d)
	if err != nil {
		return r, fmt.Errorf("make the client %q: %w", o.Client, err)
	}
	if err := d.produce(p, 0, o.WarmUp, 0); err != nil {
		return r, fmt.Errorf("warm up: %w", err)
	}
	if o.Rate > 0 {
		d.handed, d.acked = make([]time.Duration, o.WarmUp+o.Records), make([]time.Duration, o.WarmUp+o.Records)
	}
	stop, err := profileTo(o.Profile)
	if err != nil {
		return r, err
	}
	defer stop()
	began, cpu := time.Now(), cpuUsed()
	if err := d.produce(p, o.WarmUp, o.Records, o.Rate); err != nil {
		return r, fmt.Errorf("produce: %w", err)
	}
	r.Seconds, r.CPU = time.Since(began).Seconds(), (cpuUsed() - cpu).Seconds()
	if o.Rate > 0 {
		d.quantiles(&r)
	}
	return r, p.close()
}

// profileTo records a CPU profile until the function is called.
func profileTo(path string) (stop func(), err error) {
	if path == "" {
		return func() {}, nil
	}
	file, err := os.Create(path)
	if err == nil {
		err = pprof.StartCPUProfile(file)
	}
	if err != nil {
		return nil, fmt.Errorf("record a profile: %w", err)
	}
	return func() {
		pprof.StopCPUProfile()
		_ = file.Close() // what is missing in it shows
	}, nil
}

// handOver is how many records are handed over at a time when there is no pace.
const handOver = 500

// produce hands records over, at the rate if there is one, and waits for the last acknowledgement.
func (d *desk) produce(p producer, first, n, rate int) error {
	d.wanted.Store(int64(first + n))
	began := time.Now()
	for sent := 0; sent < n; {
		due := min(n-sent, handOver)
		if rate > 0 {
			due = min(n-sent, int(time.Since(began).Seconds()*float64(rate))-sent)
		}
		if due <= 0 {
			time.Sleep(time.Millisecond) // the sleep sets the pace
			continue
		}
		if d.handed != nil {
			now := time.Since(d.base)
			for i := range due {
				d.handed[first+sent+i] = now
			}
		}
		if err := p.send(first+sent, due); err != nil {
			return err
		}
		sent += due
	}
	return d.wait()
}

func (d *desk) quantiles(r *outcome) {
	all := make([]float64, 0, d.Records)
	for n := d.WarmUp; n < d.WarmUp+d.Records; n++ {
		all = append(all, milliseconds(d.acked[n]-d.handed[n]))
	}
	slices.Sort(all)
	at := func(q float64) float64 { return all[min(int(q*float64(len(all))), len(all)-1)] }
	r.P50, r.P99, r.Max = at(0.50), at(0.99), all[len(all)-1]
}

// cpuUsed is the CPU time of this process so far.
func cpuUsed() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // it has no other error than a bad argument (getrusage(2))
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
