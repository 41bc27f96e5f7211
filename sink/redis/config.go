package redis

import (
	"time"

	"github.com/cdc-relay/cdc-relay/internal/access/certs"
	"github.com/cdc-relay/cdc-relay/internal/redisconn"
	"github.com/cdc-relay/cdc-relay/sink"
)

// StreamsConfig says where the server is. Files are read again at each connect.
type StreamsConfig struct {
	URL          string // redis://user@host:port/db, rediss:// for TLS; of Sentinels, or nodes of a cluster, with commas
	PasswordFile string
	Sentinel     redisconn.Sentinel
	Cluster      bool // the URL is that of some nodes of a cluster
	TLS          certs.Files
	// MaxLength trims streams to about so many entries, 0 = never.
	MaxLength      int64
	MinReplicas    int // that must have what counts as written; 0: none
	DialTimeout    time.Duration
	RequestTimeout time.Duration // how long the server may take for one script
	Hooks          Hooks
}

// streamRights are the ACL rules that the user needs on the streams, for check too.
const streamRights = "+ping +evalsha +eval +type +time '+xinfo|stream' +xadd +xtrim +xrange"

// rightsToKeep are the additional rules for MinReplicas.
const rightsToKeep = " +wait +xsetid"

// Hooks observe. They must be quick; any may be nil.
type Hooks struct{ Alarm func(sink.Alarm) }
