package inbox

import "strings"

// sideEffect classifies what else a handler's statement does.
type sideEffect uint8

const (
	plain       sideEffect = iota
	setsLocal              // changes a setting until the transaction ends
	setsSession            // changes a setting of the session, which outlives the transaction
	ends                   // ends the transaction
)

// inspect returns the worst that a statement, or several in one text, does.
func inspect(sql string) (worst sideEffect) {
	for sql != "" {
		var one string
		one, sql = nextStatement(sql)
		worst = max(worst, inspectOne(one))
	}
	return worst
}

func inspectOne(sql string) sideEffect {
	first, rest := nextWord(sql)
	switch first {
	case "commit", "end", "abort":
		return ends
	case "rollback":
		next, rest := nextWord(rest)
		if next == "work" || next == "transaction" {
			next, _ = nextWord(rest)
		}
		if next == "to" { // a savepoint
			return plain
		}
		return ends
	case "prepare":
		if next, _ := nextWord(rest); next == "transaction" {
			return ends
		}
	case "set":
		switch next, _ := nextWord(rest); next {
		case "constraints", "transaction":
			return plain
		case "local":
			return setsLocal
		}
		return setsSession
	case "reset":
		return setsSession
	}
	if strings.Contains(sql, "set_config") {
		return setsSession
	}
	return plain
}

// nextWord skips blanks and comments, and returns the word behind them in small letters.
func nextWord(sql string) (word, rest string) {
	for {
		sql = strings.TrimLeft(sql, " \t\r\n\f\v(")
		switch {
		case strings.HasPrefix(sql, "--"):
			_, sql, _ = strings.Cut(sql, "\n")
			continue
		case strings.HasPrefix(sql, "/*"):
			sql = sql[commentLength(sql):]
			continue
		}
		n := 0
		for n < len(sql) && (sql[n]|0x20 >= 'a' && sql[n]|0x20 <= 'z' || sql[n] == '_') {
			n++
		}
		if n > len("transaction") { // longer than any that matters
			return "", sql[n:]
		}
		return strings.ToLower(sql[:n]), sql[n:]
	}
}

// commentLength is that of the comment at the text's beginning. Comments nest.
func commentLength(sql string) int {
	depth := 0
	for i := 0; i+1 < len(sql); i++ {
		switch sql[i : i+2] {
		case "/*":
			depth++
			i++
		case "*/":
			depth--
			i++
			if depth == 0 {
				return i + 1
			}
		}
	}
	return len(sql)
}

// nextStatement cuts the text at its first semicolon outside of quotes and comments.
func nextStatement(sql string) (statement, rest string) {
	if strings.IndexByte(sql, ';') < 0 {
		return sql, ""
	}
	for i := 0; i < len(sql); i++ {
		switch c := sql[i]; {
		case c == ';':
			return sql[:i], sql[i+1:]
		case c == '\'' || c == '"':
			escapes := c == '\'' && i > 0 && sql[i-1]|0x20 == 'e'
			for i++; i < len(sql) && sql[i] != c; i++ {
				if escapes && sql[i] == '\\' {
					i++
				}
			}
		case c == '$':
			i += dollarLength(sql[i:]) - 1
		case strings.HasPrefix(sql[i:], "--"):
			if end := strings.IndexByte(sql[i:], '\n'); end >= 0 {
				i += end
			} else {
				i = len(sql)
			}
		case strings.HasPrefix(sql[i:], "/*"):
			i += commentLength(sql[i:]) - 1
		}
	}
	return sql, ""
}

// dollarLength is that of the dollar-quoted text at the beginning, or 1 if there is none: a parameter such as $1.
func dollarLength(sql string) int {
	end := strings.IndexByte(sql[1:], '$')
	if end < 0 {
		return 1
	}
	tag := sql[:end+2]
	for i := 1; i < len(tag)-1; i++ {
		c := tag[i]
		letter := c|0x20 >= 'a' && c|0x20 <= 'z' || c == '_' || c >= 0x80
		if !letter && (i == 1 || c < '0' || c > '9') {
			return 1
		}
	}
	if length := strings.Index(sql[len(tag):], tag); length >= 0 {
		return length + 2*len(tag)
	}
	return len(sql)
}
