package check

import (
	"fmt"

	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/replication"
)

// standbys looks whether the server would take the relay's stream for a synchronous standby. The stream is asked for
// the name that it has there, which the server may have cut short; without one its own line says what is wrong.
func (e *postgresExam) standbys() error {
	const name = "synchronous_standby_names"
	names, err := e.setting(name)
	if err != nil {
		return err
	}
	c := relay.ReplicationConfig(e.cfg)
	if names != "" {
		if known, err := replication.Setting(e.ctx, c, "application_name"); err == nil {
			c.ApplicationName = known
		}
	}
	switch {
	case names == "":
		e.add(OK, name, "empty: no commit waits for a standby", "")
	case replication.NamesStandby(names, c.ApplicationName):
		e.add(Fail, name, fmt.Sprintf("%q takes the relay's stream (application_name %s) for a standby, too: each commit "+
			"would wait forever for the relay's confirmation, including its own commits", names, c.ApplicationName),
			e.setTo(replication.StandbyRemedy, ", and let it list the standbys by their names"))
	default:
		e.add(OK, name, fmt.Sprintf("%q does not name the relay's stream", names), "")
	}
	return nil
}
