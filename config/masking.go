package config

import (
	"regexp"
	"strings"
)

// masked replaces a secret, as in net/url and pgx.
const masked = "xxxxx"

var (
	// From the colon after the user to the last @ anywhere: a password with an unescaped @, :, /, ? or # is wrong in a
	// URL, but must not leak for that. An @ in the query makes it hide more than the password, which does no harm.
	userinfo = regexp.MustCompile(`(?s)(://[^:@]*):.*@`)
	// The same where there is an @ in the name of the user, which Go and pgx take; up to the next URL of a list. What
	// begins with a number and a comma is a port, and another host.
	userinfoOfAt = regexp.MustCompile(`(://[^:/?#\s]*@[^:/?#\s]*):(\d+,)?(?:[^:]|:[^/]|:/[^/])*@`)
	// The same where the scheme is misspelt: postgres:/user:secret@host, postgres//user:secret@host, user:secret@host. A
	// password in a pair is for passwordPair.
	userinfoOfNone = regexp.MustCompile(`(?s):[^/\s].*@`)
	keyValues      = regexp.MustCompile(`^\s*\w+\s*=`)
	// The same before a further host of a list, which has no scheme.
	userinfoOfHost = regexp.MustCompile(`(,[^:/?#,@\s]+):[^,/]*@`)
	// password=… of a URL's query.
	passwordQuery = regexp.MustCompile(`(?i)((?:ssl)?password\s*=\s*)[^\s&]+`)
	// password=… of a key=value string, where it is quoted with ' or ends at a space that no backslash keeps.
	passwordPair = regexp.MustCompile(`(?is)((?:ssl)?password\s*=\s*)(?:'(?:[^'\\]|\\.)*'?)?(?:[^\s\\]|\\.?)*`)
	isURL        = regexp.MustCompile(`^\s*\w[\w+.-]*://`)
	// A user without a password is a token for NATS.
	token = regexp.MustCompile(`(://)[^:/?#@\s]+@`)
)

// MaskURL replaces every password in a connection URL or key=value string, well-formed or not.
func MaskURL(s string) string {
	hidden := userinfo.ReplaceAllString(s, "$1:"+masked+"@")
	hidden = userinfoOfAt.ReplaceAllStringFunc(hidden, func(found string) string {
		if m := userinfoOfAt.FindStringSubmatch(found); m[2] == "" {
			return m[1] + ":" + masked + "@"
		}
		return found
	})
	if !strings.Contains(s, "://") && !keyValues.MatchString(s) {
		hidden = userinfoOfNone.ReplaceAllString(hidden, ":"+masked+"@")
	}
	if isURL.MatchString(s) {
		hidden = userinfoOfHost.ReplaceAllString(hidden, "$1:"+masked+"@")
		return passwordQuery.ReplaceAllString(hidden, "${1}"+masked)
	}
	return passwordPair.ReplaceAllString(hidden, "${1}"+masked)
}

// maskNATS is MaskURL for addresses of NATS, where a user without a password is a token.
func maskNATS(s string) string { return token.ReplaceAllString(MaskURL(s), "${1}"+masked+"@") }

// query is that of a URL, up to the next one in a list.
var query = regexp.MustCompile(`\?[^\s,}]*`)

// maskEndpoint hides what follows the path, too: receivers' tokens are there.
func maskEndpoint(s string) string { return query.ReplaceAllString(MaskURL(s), "?"+masked) }

// secretPair is a parameter that holds a secret, where none belongs, as a file or a variable writes it.
var secretPair = regexp.MustCompile(`(?i)(\w*(?:secret|password|assertion|token)\w*\s*[:=]\s*)[^,}]*`)

// maskPairs hides the values whose names say that they are secret.
func maskPairs(s string) string { return secretPair.ReplaceAllString(s, "${1}"+masked) }

// namesSecret reports whether a name is one of a secret.
func namesSecret(name string) bool { return secretPair.MatchString(name + "=") }
