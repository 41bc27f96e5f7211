package settle

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// table takes rows but those that it refuses, as Postgres does: all of a statement or none.
type table struct {
	refuses func(row int) bool
	has     []int
	dead    []int
	writes  int
}

var errRefused = fmt.Errorf("write: %w", &pgconn.PgError{Code: "23514"})

func (t *table) write(from, to int) error {
	t.writes++
	for row := from; row < to; row++ {
		if t.refuses(row) {
			return errRefused
		}
	}
	for row := from; row < to; row++ {
		t.has = append(t.has, row)
	}
	return nil
}

func (t *table) giveUp(row int, why error) error {
	t.dead = append(t.dead, row)
	return nil
}

// Breaks it catches: rows that are written out of order, twice or not at all because of another one; a search that asks
// for each row. Seen to fail with the second half forgotten, and with a row at a time.
func TestOnlyWhatIsRefusedIsGivenUp(t *testing.T) {
	for _, bad := range [][]int{{}, {0}, {999}, {500, 501}, {3, 400, 401, 998}} {
		tab := &table{refuses: func(row int) bool { return slices.Contains(bad, row) }}
		if err := new(refusals).narrow(0, 1000, tab.write, tab.giveUp); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(tab.dead, bad) || len(tab.has) != 1000-len(bad) || !slices.IsSorted(tab.has) {
			t.Errorf("refused %v: got %v given up, %d written, in order %t",
				bad, tab.dead, len(tab.has), slices.IsSorted(tab.has))
		}
		if tab.writes > 1+22*len(bad) {
			t.Errorf("refused %v: got %d writes", bad, tab.writes)
		}
	}
}

// Breaks it catches: a table that takes nothing at all, and so makes a dead letter of each event; trouble that is no
// row's taken for one. Seen to fail without the bound, with one that nothing resets, and with any error narrowed.
func TestTableThatRefusesEverythingIsNotTheRowsFault(t *testing.T) {
	var counted refusals
	tab := &table{refuses: func(int) bool { return true }}
	for range 3 {
		if err := counted.narrow(0, 100, tab.write, tab.giveUp); !errors.Is(err, errRefused) {
			t.Errorf("a table that takes nothing: got %v, want its refusal", err)
		}
	}
	if len(tab.dead) != mostRefused {
		t.Errorf("given up before the table was blamed: got %d rows, want %d", len(tab.dead), mostRefused)
	}
	tab.refuses = func(row int) bool { return row == 50 }
	for range 2 * mostRefused { // it is repaired but for one row
		if err := counted.narrow(0, 100, tab.write, tab.giveUp); err != nil {
			t.Fatal(err)
		}
	}
	gone := errors.New("connection reset")
	tab.dead = nil
	err := counted.narrow(0, 100, func(int, int) error { return gone }, tab.giveUp)
	if !errors.Is(err, gone) || tab.dead != nil {
		t.Errorf("a connection that breaks: got %v and %v given up, want it returned and none", err, tab.dead)
	}
}
