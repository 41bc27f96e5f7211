package redis

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/access/certs"
	"github.com/cdc-relay/cdc-relay/internal/redisconn"
)

// The libraries whose workers take the jobs.
const (
	LibraryBullMQ = "bullmq" // BullMQ 5 and 6
	LibraryBull   = "bull"   // Bull 4
)

// JobEvent reports that the data of a job is an object of the whole event, and by which headers its parts are known.
// One that a record does not have is left out of the object.
type JobEvent struct {
	ID, EventType, AggregateType, CreatedAt string // names of headers
	Key                                     string // what the object calls the record's key
}

// BullMQConfig says where the server is and what jobs are like. Files are read again at each connect.
type BullMQConfig struct {
	URL          string // redis://user@host:port/db, rediss:// for TLS; of Sentinels, or nodes of a cluster, with commas
	PasswordFile string
	Sentinel     redisconn.Sentinel
	Cluster      bool // the URL is that of some nodes of a cluster
	TLS          certs.Files
	Library      string // LibraryBullMQ or LibraryBull
	Prefix       string // of the keys, as the workers have it
	// JobName and JobID are templates: names of headers in braces, and {key}, the record's key. A job whose id is empty
	// gets one that no one else has.
	JobName, JobID string
	Options        JobOptions
	// Event makes the data of jobs. Nil: the data is the record's value, and the options have its key and headers.
	Event *JobEvent
	// IDHeader is the name of the header that identifies an event, for what is read back.
	IDHeader string
	// Unrecorded is how many records can be on their way without being journaled: so many can be read back.
	Unrecorded     int
	MinReplicas    int // that must have what counts as written; 0: none
	DialTimeout    time.Duration
	RequestTimeout time.Duration // how long the server may take for one script
	Hooks          Hooks
}

// jobRights returns the ACL rules that the user needs on the keys of queues and of the relay, for check too.
func jobRights(library string) string {
	const all = "+ping +evalsha +eval +type +get +set +incrby +hmget +hset +lpush +lrange +ltrim"
	if library == LibraryBull {
		return all + " +hget +exists +publish"
	}
	return all + " +llen +xadd +zadd"
}

// JobOptions are a job's options, named as in the libraries.
type JobOptions struct {
	Attempts         int
	BackoffType      string // "fixed", "exponential", or a name that the workers know; "": none
	BackoffDelay     time.Duration
	RemoveOnComplete JobKeep
	RemoveOnFail     JobKeep
}

// JobKeep says what becomes of jobs that have ended. The zero value keeps all.
type JobKeep struct {
	Remove bool
	// Count and Age spare the youngest: so many, and none older than that. Both zero spare none.
	Count int
	Age   time.Duration
}

// json is the value that the libraries want; nil: nothing is said.
func (k JobKeep) json() any {
	switch {
	case !k.Remove:
		return nil
	case k.Count == 0 && k.Age == 0:
		return true
	}
	return struct {
		Age   int `json:"age,omitempty"` // seconds
		Count int `json:"count,omitempty"`
	}{int(k.Age / time.Second), k.Count}
}

// opening is the beginning of every job's options in JSON, up to where the job's own come.
func (o JobOptions) opening() ([]byte, error) {
	type backoff struct {
		Type  string `json:"type"`
		Delay int64  `json:"delay"` // milliseconds
	}
	all := struct {
		Attempts         int      `json:"attempts,omitempty"`
		Backoff          *backoff `json:"backoff,omitempty"`
		RemoveOnComplete any      `json:"removeOnComplete,omitempty"`
		RemoveOnFail     any      `json:"removeOnFail,omitempty"`
	}{Attempts: o.Attempts, RemoveOnComplete: o.RemoveOnComplete.json(), RemoveOnFail: o.RemoveOnFail.json()}
	if o.BackoffType != "" {
		all.Backoff = &backoff{o.BackoffType, o.BackoffDelay.Milliseconds()}
	}
	text, err := json.Marshal(all)
	if err != nil {
		return nil, fmt.Errorf("write the options of jobs: %w", err)
	}
	if text = bytes.TrimSuffix(text, []byte("}")); len(text) > 1 {
		text = append(text, ',')
	}
	return text, nil
}
