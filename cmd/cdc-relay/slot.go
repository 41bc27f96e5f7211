package main

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/outbox"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/replication"
	"github.com/cdc-relay/cdc-relay/store"
)

type slotCommand struct {
	Status  slotStatusCommand  `cmd:"" help:"Show the replication slot."`
	Drop    slotDropCommand    `cmd:"" help:"Drop the slot. Dangerous."`
	Advance slotAdvanceCommand `cmd:"" help:"Move the slot forward, past WAL that cannot be read. Dangerous."`
}

func (slotCommand) Help() string {
	return "Example:\n\n  cdc-relay slot status --config relay.yaml"
}

const slotPatience = 30 * time.Second

// slotWork loads the configuration, reads the slot and hands it over.
func slotWork(a *app, do func(ctx context.Context, cfg config.Config, slot store.SlotStatus) error) error {
	ctx, stop := stoppable(context.Background(), func() {})
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, slotPatience)
	defer cancel()
	st, cfg, err := a.openTables(ctx)
	if err != nil {
		return err
	}
	defer st.Close()
	slot, err := st.Slot(ctx)
	if err != nil {
		return err
	}
	return do(ctx, cfg, slot)
}

type slotStatusCommand struct{}

func (slotStatusCommand) Help() string {
	return "Exit code 1 when there is no such slot, or it is lost.\n\nExample:\n\n  cdc-relay slot status --config relay.yaml"
}

// slotReport is the slot in JSON.
type slotReport struct {
	Name         string `json:"slot"`
	Exists       bool   `json:"exists"`
	Active       bool   `json:"active"`
	ActivePID    uint32 `json:"active_pid,omitempty"`
	Plugin       string `json:"plugin,omitempty"`
	Database     string `json:"database,omitempty"`
	ConfirmedLSN string `json:"confirmed_lsn,omitempty"`
	RestartLSN   string `json:"restart_lsn,omitempty"`
	WALEnd       string `json:"wal_end"`
	LagBytes     int64  `json:"lag_bytes"`
	Retained     int64  `json:"retained_wal_bytes"`
	Safe         *int64 `json:"safe_wal_bytes"`
	WALStatus    string `json:"wal_status,omitempty"`
	Invalidation string `json:"invalidation_reason,omitempty"`
	Failover     bool   `json:"failover"`
	Synced       bool   `json:"synced"`
	Temporary    bool   `json:"temporary"`
}

// Run shows the slot.
func (slotStatusCommand) Run(a *app) error {
	return slotWork(a, func(_ context.Context, cfg config.Config, s store.SlotStatus) error {
		r := slotReport{Name: cfg.Postgres.Slot, Exists: s.Exists, Active: s.Active, ActivePID: s.ActivePID, Plugin: s.Plugin, Database: s.Database,
			WALEnd: s.WALEnd.String(), Retained: s.RetainedBytes, Safe: s.SafeWALSize, WALStatus: s.WALStatus, Invalidation: s.InvalidationReason,
			Failover: s.Failover, Synced: s.Synced, Temporary: s.Temporary}
		if s.Exists {
			r.ConfirmedLSN, r.RestartLSN, r.LagBytes = s.Confirmed.String(), s.Restart.String(), max(int64(s.WALEnd)-int64(s.Confirmed), 0)
		}
		if a.cli.JSON {
			if err := a.printJSON(r); err != nil {
				return err
			}
		} else {
			a.printSlot(r)
		}
		if !s.Exists || s.WALStatus == "lost" {
			return silentError{exitFailed}
		}
		return nil
	})
}

func (a *app) printSlot(r slotReport) {
	line := func(name, format string, args ...any) {
		fmt.Fprintf(a.out, "%-10s %s\n", name, fmt.Sprintf(format, args...))
	}
	if !r.Exists {
		line("slot", "%s: %s", r.Name, a.paint(red, "there is none on this server"))
		return
	}
	line("slot", "%s, plugin %s, database %s", r.Name, r.Plugin, r.Database)
	switch {
	case r.Active:
		line("held by", "backend %d", r.ActivePID)
	default:
		line("held by", "%s", a.paint(yellow, "nobody: no relay streams, and the server keeps WAL for it"))
	}
	line("position", "confirmed %s, %s behind the end of WAL", r.ConfirmedLSN, bytesOf(r.LagBytes))
	line("keeps", "%s of WAL", bytesOf(r.Retained))
	if r.Safe != nil {
		line("limit", "%s more can be written before the server may remove what it needs (max_slot_wal_keep_size)", bytesOf(*r.Safe))
	}
	status := r.WALStatus
	if r.Invalidation != "" {
		status += " (" + r.Invalidation + ")"
	}
	colour := green
	if r.WALStatus == "unreserved" || r.WALStatus == "lost" {
		colour = red
	}
	line("WAL", "%s", a.paint(colour, status))
	if r.Failover || r.Synced || r.Temporary {
		line("failover", "kept on standbys: %v; a copy of the primary's: %v; lost at a promotion: %v", r.Failover, r.Synced, r.Synced && r.Temporary)
	}
}

type slotDropCommand struct {
	Yes bool `help:"Do not ask." env:"CDC_RELAY_SLOT_DROP_YES"`
}

func (slotDropCommand) Help() string {
	return "The slot is where the relay's position is. Without it, a relay with postgres.on_slot_lost: recover begins again from the table and publishes every row that is not published; rows that were deleted before are gone. Drop it when you do not use the relay any more: else the server keeps WAL for it until the disk is full.\n\nExample:\n\n  cdc-relay slot drop --config relay.yaml"
}

// Run drops the slot.
func (c slotDropCommand) Run(a *app) error {
	return slotWork(a, func(ctx context.Context, cfg config.Config, s store.SlotStatus) error {
		if err := mayChange(cfg, s); err != nil {
			return err
		}
		if err := a.confirm(c.Yes, cfg.Postgres.Slot, fmt.Sprintf("This drops the slot %s, which stands at %s.", cfg.Postgres.Slot, s.Confirmed)); err != nil {
			return err
		}
		if err := replication.DropSlot(ctx, relay.ReplicationConfig(cfg)); err != nil {
			return err
		}
		if a.cli.JSON {
			return a.printJSON(map[string]string{"slot": cfg.Postgres.Slot, "dropped_at": s.Confirmed.String()})
		}
		fmt.Fprintf(a.out, "dropped the slot %s\n", cfg.Postgres.Slot)
		return nil
	})
}

type slotAdvanceCommand struct {
	To  string `help:"Position to move to, such as 0/1A2B3C4D; end: the end of WAL." required:"" placeholder:"LSN|end" env:"CDC_RELAY_SLOT_ADVANCE_TO"`
	Yes bool   `help:"Do not ask." env:"CDC_RELAY_SLOT_ADVANCE_YES"`
}

func (slotAdvanceCommand) Help() string {
	return "The stream skips everything up to the position. The relay sees at its next start that the slot was moved, and publishes from the table, marked x-outbox-late, what is there and not published; rows that were deleted before are gone. It is the way past WAL that the server or the relay cannot read.\n\nExample:\n\n  cdc-relay slot advance --to 0/1A2B3C4D --config relay.yaml"
}

// Run moves the slot.
func (c slotAdvanceCommand) Run(a *app) error {
	var position outbox.LSN // 0: the end
	if c.To != "end" {
		var err error
		if position, err = outbox.ParseLSN(c.To); err != nil || position == 0 {
			a.wrong("--to", fmt.Sprintf("found %q", c.To), "a position such as 0/1A2B3C4D, or end")
		}
	}
	return slotWork(a, func(ctx context.Context, cfg config.Config, s store.SlotStatus) error {
		to := cmp.Or(position, s.WALEnd)
		if err := mayChange(cfg, s); err != nil {
			return err
		}
		if to <= s.Confirmed || to > s.WALEnd {
			return usageError{fmt.Errorf("--to %s: the slot stands at %s and the WAL ends at %s; want a position between the two", to, s.Confirmed, s.WALEnd)}
		}
		if err := a.confirm(c.Yes, cfg.Postgres.Slot, fmt.Sprintf("This moves the slot %s from %s to %s. What was committed in between does not come by the stream.", cfg.Postgres.Slot, s.Confirmed, to)); err != nil {
			return err
		}
		at, err := replication.AdvanceSlot(ctx, relay.ReplicationConfig(cfg), to)
		if err != nil {
			return err
		}
		if a.cli.JSON {
			return a.printJSON(map[string]string{"slot": cfg.Postgres.Slot, "from": s.Confirmed.String(), "to": at.String()})
		}
		fmt.Fprintf(a.out, "moved the slot %s to %s; the next start publishes from the table what was skipped\n", cfg.Postgres.Slot, at)
		return nil
	})
}

// mayChange refuses what the server would refuse, with what to do.
func mayChange(cfg config.Config, s store.SlotStatus) error {
	switch {
	case !s.Exists:
		return fmt.Errorf("there is no slot %q on this server", cfg.Postgres.Slot)
	case s.Active:
		return fmt.Errorf("the slot %q is held by backend %d: stop every relay that uses it first", cfg.Postgres.Slot, s.ActivePID)
	}
	return nil
}

// confirm has a person type the word, unless yes says so already.
func (a *app) confirm(yes bool, word, what string) error {
	if yes {
		return nil
	}
	if !isTerminal(os.Stdin) {
		return usageError{fmt.Errorf("%s Nobody can be asked here: give --yes if that is wanted", what)}
	}
	fmt.Fprintf(a.err, "%s\nType %s to go on: ", what, word)
	answer, err := bufio.NewReader(os.Stdin).ReadString('\n')
	if err != nil && err != io.EOF {
		return fmt.Errorf("read the answer: %w", err)
	}
	if strings.TrimSpace(answer) != word {
		return fmt.Errorf("nothing was done")
	}
	return nil
}
