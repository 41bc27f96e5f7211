package redisconn

import (
	"errors"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/cdc-relay/cdc-relay/internal/access/certs"
	"github.com/cdc-relay/cdc-relay/sink"
)

// refusals are the beginnings of what Redis answers to a script that has written nothing, and whose trouble that is.
var refusals = map[string]sink.Trouble{
	"WRONGTYPE":   sink.TopicTrouble,
	"NOPERM":      sink.TopicTrouble,
	"OOM":         sink.ClusterTrouble,
	"NOREPLICAS":  sink.ClusterTrouble,
	"MISCONF":     sink.ClusterTrouble,
	"LOADING":     sink.ClusterTrouble,
	"READONLY":    sink.ClusterTrouble,
	"MASTERDOWN":  sink.ClusterTrouble,
	"BUSY":        sink.ClusterTrouble,
	"CLUSTERDOWN": sink.ClusterTrouble,
	"TRYAGAIN":    sink.ClusterTrouble,
	"MOVED":       sink.ClusterTrouble,
	"ASK":         sink.ClusterTrouble,
	"NOAUTH":      sink.ConfigurationTrouble,
	"WRONGPASS":   sink.ConfigurationTrouble,
	"CROSSSLOT":   sink.ConfigurationTrouble,
}

// noCluster is the answer of a server outside of a cluster.
const noCluster = "cluster support disabled"

// deniedInScript is the answer of a script whose user may not run a command in it.
const deniedInScript = "The user executing the script can't"

// refusal is the word by which Redis refused, and whose trouble it is.
func refusal(err error) (word string, kind sink.Trouble, refused bool) {
	var said redis.Error
	if !errors.As(err, &said) {
		return "", sink.NoTrouble, false
	}
	text := said.Error()
	if strings.Contains(text, deniedInScript) {
		return "NOPERM", sink.TopicTrouble, true
	}
	if strings.Contains(text, noCluster) {
		return "NO_CLUSTER", sink.ConfigurationTrouble, true
	}
	word, _, _ = strings.Cut(text, " ")
	kind, refused = refusals[word]
	return word, kind, refused
}

// troubleOf is whose trouble an error is.
func troubleOf(err error) sink.Trouble {
	if _, kind, refused := refusal(err); refused {
		return kind
	}
	if certs.IsError(err) {
		return sink.ConfigurationTrouble
	}
	return sink.TroubleOf(err, sink.ClusterTrouble)
}

// unsent reports whether the command was certainly not sent.
func unsent(err error) bool {
	var op *net.OpError
	var login *trouble
	return errors.As(err, &op) && op.Op == "dial" || errors.As(err, &login) ||
		errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted)
}

// trouble is an error that says whose it is.
type trouble struct {
	kind sink.Trouble
	err  error
}

func (t *trouble) Error() string         { return t.err.Error() }
func (t *trouble) Unwrap() error         { return t.err }
func (t *trouble) Trouble() sink.Trouble { return t.kind }

// Passing marks temporary errors, and the lack of any answer. An answer about the key is neither,
// nor an error that a person must fix at the key. In a cluster the other nodes may answer while this one does not.
func Passing(err error) error {
	switch sink.TroubleOf(err, sink.ClusterTrouble) {
	case sink.TopicTrouble:
		return err
	case sink.PartitionTrouble:
		return errors.Join(sink.ErrPassing, err)
	}
	if unsent(err) {
		return errors.Join(sink.ErrUnreachable, err)
	}
	return errors.Join(sink.ErrPassing, err)
}
