package record

import (
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
)

// Spooled is one row of the spool: transactions of the stream, or a part of one, that wait to be sent.
type Spooled struct {
	Number    int64 // consecutive within its source
	Era       int64
	Ends      outbox.LSN // the end of the last transaction that ends in the row; 0: it is a part, and not the last one
	Committed time.Time  // the first of its transactions
	Events    int
	Data      []byte // as package spool packs it
}

// SpoolState describes the spooled batches of a source.
type SpoolState struct {
	First, Last int64      // numbers of rows, 0 when there is none
	Era         int64      // of the last row
	Ends        outbox.LSN // the end of the last transaction
	Events      int64
	Oldest      time.Time // commit time of the first transaction; zero: none
}

// Empty reports that nothing is spooled.
func (s SpoolState) Empty() bool { return s.Last == 0 }
