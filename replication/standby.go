package replication

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
)

// SynchronousStandbyError reports that the server counts the stream as one of its synchronous standbys. Each commit
// then waits until the stream confirms it, also those by which the relay records what it may confirm: none ever ends,
// and no statement_timeout ends the wait.
type SynchronousStandbyError struct {
	ApplicationName string // the stream's
	Names           string // the server's synchronous_standby_names; empty when Said is not
	Said            string // by the server, when it began to count on a stream
}

func (e *SynchronousStandbyError) Error() string {
	why := cmp.Or(e.Said, fmt.Sprintf("synchronous_standby_names is %q", e.Names))
	return fmt.Sprintf("the server takes the stream (application_name %s) for a synchronous standby (%s)",
		e.ApplicationName, why)
}

// StandbyRemedy is the remedy for a SynchronousStandbyError.
const StandbyRemedy = "name the standbys in synchronous_standby_names, without * and without the relay's stream: " +
	"ALTER SYSTEM SET synchronous_standby_names = 'FIRST 1 (…)'; (the application_name of each) and " +
	"SELECT pg_reload_conf();"

// standbyToken is one token of synchronous_standby_names (PostgreSQL: syncrep_scanner.l): a name in quotes, a sign, or
// a name or number, which has nothing else in it that the server takes.
var standbyToken = regexp.MustCompile(`"(?:[^"]|"")*"|[*(),]|[^"*(), \t\n\r\f\v]+`)

// NamesStandby reports whether a value of synchronous_standby_names names a walsender with this application_name, or
// any. It reads what the server has accepted (syncrep_gram.y): a list of names, or such a list in parentheses behind a
// number and FIRST, ANY or neither.
func NamesStandby(names, application string) bool {
	tokens := standbyToken.FindAllString(names, -1)
	for i, t := range tokens {
		if t == "(" { // the part before it is the number and the method
			tokens = tokens[i+1:]
			break
		}
	}
	for _, t := range tokens {
		if quoted, is := strings.CutPrefix(t, `"`); is {
			t = strings.ReplaceAll(strings.TrimSuffix(quoted, `"`), `""`, `"`)
		} else if t == "," || t == ")" {
			continue
		}
		if t == "*" || lower(t) == lower(application) { // in quotes a * is any, too
			return true
		}
	}
	return false
}

// lower is a name with its ASCII letters small: pg_strcasecmp leaves other letters as they are in UTF-8, and an
// application_name has none.
func lower(name string) string {
	b := []byte(name)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}
