package replication

import (
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgproto3"
)

// NoticeText is a notice or warning that the server sent.
type NoticeText struct{ Severity, Code, Message string }

// The server's routines that say why a stream must not go on. Their texts are in the language of the server
// (lc_messages), which only a superuser may choose.
const (
	// A publication is missing: an error, from PostgreSQL 18 a warning.
	missingPublication = "get_publication_oid"
	skippedPublication = "LoadPublications"
	// The server has begun to count on this stream as on a synchronous standby: for its log, and for the stream if that
	// asks for what is for the log.
	countedAsStandby = "SyncRepReleaseWaiters"
)

// logSeverity is the level of what the server tells its log. The stream asks for it because of countedAsStandby;
// nothing else of it is worth a line of ours.
const logSeverity = "LOG"

// takeNotice sorts the server's notices. After some of them the stream must not continue.
func (s *Session) takeNotice(body []byte) error {
	var n pgproto3.NoticeResponse
	if err := n.Decode(body); err != nil {
		return fmt.Errorf("read notice: %w", err)
	}
	switch {
	case n.Routine == skippedPublication, strings.Contains(n.Message, "skipped loading publication"):
		// From PostgreSQL 18 a missing publication is only a warning, and its rows are skipped: silent loss.
		return &PublicationMissingError{Publication: s.c.Publication, Said: n.Message}
	case n.Routine == countedAsStandby: // seen while the stream is read; Open has looked before
		return &SynchronousStandbyError{ApplicationName: s.c.ApplicationName, Said: n.Message}
	}
	s.c.notice(n.SeverityUnlocalized, NoticeText{Severity: n.Severity, Code: n.Code, Message: n.Message})
	return nil
}

// notice passes on a message, unless the server means it for its own log.
func (c Config) notice(severity string, n NoticeText) {
	if c.OnNotice != nil && severity != logSeverity {
		c.OnNotice(n)
	}
}
