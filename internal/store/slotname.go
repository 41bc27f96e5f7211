package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/store/internal/db"
)

// FindSlot returns the slot of a relay whose configuration names none: c.Slot where this database has that slot, or a
// relay has recorded something under it, else the [DefaultSlot] of this database.
func FindSlot(ctx context.Context, c Config) (slot string, err error) {
	conn, err := Connect(ctx, c)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	var database string
	var tables, known bool
	state := db.Quote(c.Schema, "cdc_relay_state")
	err = ReadOnly(ctx, conn, func(tx Tx) error {
		err := tx.QueryRow(ctx, `SELECT current_database()::text, to_regclass($2) IS NOT NULL,
 EXISTS (SELECT FROM pg_replication_slots
  WHERE slot_name = $1 AND plugin = 'pgoutput' AND database = current_database())`,
			c.Slot, state).Scan(&database, &tables, &known)
		if err != nil || known || !tables {
			return err
		}
		return tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM `+state+` WHERE slot = $1)`, c.Slot).Scan(&known)
	})
	switch {
	case err != nil:
		return "", fmt.Errorf("postgres.slot is not set, and whether this database has the slot %s already could not be "+
			"read: %w", c.Slot, err)
	case known:
		return c.Slot, nil
	}
	return DefaultSlot(database), nil
}

const (
	slotPrefix = "cdc_relay_"
	mostOfSlot = 63 // bytes
)

// DefaultSlot is the name of a new slot for a database: cdc_relay_ and the database's name. All databases of a server
// share the names of slots. They have only a-z, 0-9 and _, so that another name is folded, and ends in a digest of what
// it was.
func DefaultSlot(database string) string {
	folded := strings.Map(func(r rune) rune {
		switch {
		case 'A' <= r && r <= 'Z':
			return r - 'A' + 'a'
		case 'a' <= r && r <= 'z', '0' <= r && r <= '9':
			return r
		}
		return '_'
	}, database)
	if folded == database && len(slotPrefix)+len(folded) <= mostOfSlot {
		return slotPrefix + folded
	}
	digest := sha256.Sum256([]byte(database))
	end := "_" + hex.EncodeToString(digest[:4])
	return slotPrefix + folded[:min(len(folded), mostOfSlot-len(slotPrefix)-len(end))] + end
}
