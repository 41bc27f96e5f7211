package check

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/rs/zerolog"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/relay/registry"
)

// examineRegistry asks the schema registry, in the formats that need one, and looks at the schemas of the rows' events.
func examineRegistry(ctx context.Context, cfg config.Config, r *Report, rows chosen) {
	subjects := rows.subjects
	schemas, err := registry.Open(cfg, zerolog.Nop())
	if err != nil {
		r.add(Fail, "schema registry", err.Error(), "correct registry.tls")
		return
	}
	if schemas == nil {
		return
	}
	defer schemas.Close()
	if c := cfg.Registry; strings.Contains(c.URL, "http://") && (c.Username != "" || c.TokenFile != "" ||
		len(c.TokenCommand) > 0) {
		r.add(Warn, "registry login", "http:// sends the password or the token in plain text", "https:// in registry.url")
	}
	if err := schemas.Ping(ctx); err != nil {
		r.add(Fail, "schema registry", err.Error(), "check registry.url, the login, the network and that the registry runs; "+
			"run waits until it answers")
		return
	}
	r.add(OK, "schema registry", "answers", "")
	for i, subject := range subjects {
		said, err := schemas.Examine(ctx, subject)
		lack, lacks := errors.AsType[*registry.Lack](err)
		switch {
		case lacks:
			r.add(Fail, "subject "+subject, lack.What+"; its events are parked", lack.Fix)
		case err != nil:
			r.add(Fail, "subject "+subject, err.Error(), "see the error; run waits until the registry answers")
		case i < topicsShown:
			r.add(OK, "subject "+subject, said, "")
		}
	}
	if more := len(subjects) - topicsShown; more > 0 {
		r.add(OK, "subjects", fmt.Sprintf("%d more were checked", more), "")
	}
	if len(subjects) == 0 && rows.known {
		r.add(Warn, "subjects", "no row chooses one yet; events wait until the schema of theirs is registered",
			"register the schemas of "+cfg.Registry.Subject)
	}
}
