//go:build kafkaonly

package main

import (
	"context"
	"errors"
	"time"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/sink"
)

// make demo leaves NATS out where it is not asked for, so that a first run has less to compile.
var errNoNATS = errors.New("this program was built without NATS (go build -tags kafkaonly): build it without the tag")

func startNATS([]string) (natsServer, error) { return nil, errNoNATS }

func natsDriver(config.Config) (sink.Driver, error) { return nil, errNoNATS }

func consumeNATS(context.Context, string, []string, func(arrival, time.Time)) error { return errNoNATS }
