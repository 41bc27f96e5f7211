package inbox

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// warnOfRetention tells of topics that keep messages for longer than the inbox keeps ids. A consumer whose offsets are
// set back that far has effects twice. Nothing can be told where the login may not read a topic's settings.
func (k *kafka) warnOfRetention(ctx context.Context) {
	keeps, err := k.retention(ctx)
	if err != nil {
		k.c.config.Log.Debug("inbox: for how long the topics keep messages is unknown", "consumer", k.c.config.Name,
			"error", err)
		return
	}
	for topic, kept := range keeps {
		if kept <= k.c.config.Keep {
			continue
		}
		retention := kept.String()
		if kept == forGood {
			retention = "forever"
		}
		k.c.config.Log.Warn("inbox: the topic keeps messages for longer than the inbox keeps ids; offsets that are set "+
			"back further than Keep repeat effects: set Keep above the topic's retention", "consumer", k.c.config.Name,
			"topic", topic, "retention", retention, "keep", k.c.config.Keep.String())
	}
}

const forGood = time.Duration(math.MaxInt64)

// retention is for how long each of the topics keeps messages by its own settings.
func (k *kafka) retention(ctx context.Context) (map[string]time.Duration, error) {
	request := kmsg.NewPtrDescribeConfigsRequest()
	for _, topic := range k.c.config.Topics {
		resource := kmsg.NewDescribeConfigsRequestResource()
		resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeTopic, topic
		resource.ConfigNames = []string{"cleanup.policy", "retention.ms"}
		request.Resources = append(request.Resources, resource)
	}
	answer, err := request.RequestWith(ctx, k.client)
	if err != nil {
		return nil, fmt.Errorf("ask for the topics' settings: %w", err)
	}
	keeps := map[string]time.Duration{}
	for _, resource := range answer.Resources {
		if err := kerr.ErrorForCode(resource.ErrorCode); err != nil {
			return nil, fmt.Errorf("ask for the settings of topic %s: %w", resource.ResourceName, err)
		}
		settings := map[string]string{}
		for _, c := range resource.Configs {
			if c.Value != nil {
				settings[c.Name] = *c.Value
			}
		}
		if kept, known := keptFor(settings); known {
			keeps[resource.ResourceName] = kept
		}
	}
	return keeps, nil
}

// keptFor is for how long a topic with these settings keeps a message. A log that is only compacted keeps the last one
// of each key permanently.
func keptFor(settings map[string]string) (kept time.Duration, known bool) {
	policy, known := settings["cleanup.policy"]
	if !known {
		return 0, false
	}
	ms, err := strconv.ParseInt(settings["retention.ms"], 10, 64)
	switch {
	case !strings.Contains(policy, "delete"):
		return forGood, true
	case err != nil:
		return 0, false
	case ms < 0 || ms > math.MaxInt64/int64(time.Millisecond):
		return forGood, true
	}
	return time.Duration(ms) * time.Millisecond, true
}
