package main

import (
	"context"

	"github.com/cdc-relay/cdc-relay/store"
)

type pauseCommand struct {
	askFlags `embed:"" envprefix:"CDC_RELAY_PAUSE_"`
}

func (pauseCommand) Help() string {
	return "Nothing is taken in until cdc-relay resume, also after a restart. What was taken in before is sent and recorded, parked events are tried again, and the slot is kept: Postgres keeps WAL for it meanwhile.\n\nExample:\n\n  cdc-relay pause --note \"broker is being upgraded\""
}

// Run asks the relay to take nothing in.
func (c pauseCommand) Run(a *app) error { return a.control(store.RequestPause, c.askFlags) }

type resumeCommand struct {
	askFlags `embed:"" envprefix:"CDC_RELAY_RESUME_"`
}

func (resumeCommand) Help() string {
	return "Ends a pause.\n\nExample:\n\n  cdc-relay resume"
}

// Run asks the relay to go on.
func (c resumeCommand) Run(a *app) error { return a.control(store.RequestResume, c.askFlags) }

// control asks for what concerns the relay as a whole.
func (a *app) control(kind string, flags askFlags) error {
	ctx, stop := stoppable(context.Background(), func() {})
	defer stop()
	st, cfg, err := a.openTables(ctx)
	if err != nil {
		return err
	}
	defer st.Close()
	return asking{a: a, st: st, slot: cfg.Postgres.Slot, flags: flags, kind: kind}.request(ctx)
}
