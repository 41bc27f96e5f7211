package io.github.cdcrelay.inbox;

import java.util.Locale;
import java.util.regex.Pattern;

/** What statements of a handler do beside their effect. */
final class Statements {
    private static final Pattern ENDS = Pattern.compile(
            "(commit|end|abort|begin|start\\s+transaction|prepare\\s+transaction)\\b.*"
            + "|rollback\\b(?!\\s+((work|transaction)\\s+)?to\\b).*", Pattern.DOTALL);
    private static final Pattern SETS = Pattern.compile(
            "(set(?!\\s+(constraints|transaction|local)\\b)|reset|listen|load|discard)\\b");
    private static final Pattern SETS_INSIDE = Pattern.compile("\\bset_config\\b|\\bpg_(try_)?advisory_lock");

    private Statements() {}

    enum Effect { PLAIN, LOCAL, SETTING, END }

    /** Returns the worst that a text does: it ends the transaction, or changes a setting of the session or, local, of it. */
    static Effect of(String sql) {
        var worst = Effect.PLAIN;
        for (var one : plain(sql).toLowerCase(Locale.ROOT).split(";")) {
            var words = one.strip();
            if (ENDS.matcher(words).matches()) {
                return Effect.END;
            }
            if (SETS.matcher(words).lookingAt() || SETS_INSIDE.matcher(words).find()) {
                worst = Effect.SETTING;
            } else if (worst == Effect.PLAIN && words.startsWith("set ")) {
                worst = Effect.LOCAL;
            }
        }
        return worst;
    }

    /** Returns the text without comments, and with x for what is quoted, so that words in them don't count. */
    private static String plain(String sql) {
        var out = new StringBuilder();
        for (int at = 0; at < sql.length(); ) {
            char c = sql.charAt(at);
            int end = 0;
            if (sql.startsWith("--", at)) {
                end = behind(sql, "\n", at);
            } else if (sql.startsWith("/*", at)) {
                end = comment(sql, at);
            } else if (c == '\'' || c == '"') {
                end = quoted(sql, at);
            } else if (c == '$' && !isWord(sql, at - 1)) {
                end = dollars(sql, at);
            }
            if (end == 0) {
                out.append(c);
                at++;
            } else {
                out.append(c == '-' || c == '/' ? " " : " x ");
                at = end;
            }
        }
        return out.toString();
    }

    private static int behind(String sql, String what, int from) {
        int at = sql.indexOf(what, from);
        return at < 0 ? sql.length() : at + what.length();
    }

    /** Comments of Postgres nest. */
    private static int comment(String sql, int from) {
        int depth = 0;
        for (int at = from; at < sql.length(); at++) {
            if (sql.startsWith("/*", at)) {
                depth++;
                at++;
            } else if (sql.startsWith("*/", at)) {
                at++;
                if (--depth == 0) {
                    return at + 1;
                }
            }
        }
        return sql.length();
    }

    /** A doubled quote ends one text and begins the next one, with the same result. */
    private static int quoted(String sql, int from) {
        char quote = sql.charAt(from);
        boolean escapes = quote == '\'' && from > 0 && (sql.charAt(from - 1) | ' ') == 'e' && !isWord(sql, from - 2);
        for (int at = from + 1; at < sql.length(); at++) {
            if (escapes && sql.charAt(at) == '\\') {
                at++;
            } else if (sql.charAt(at) == quote && escapes && at + 1 < sql.length() && sql.charAt(at + 1) == quote) {
                at++;
            } else if (sql.charAt(at) == quote) {
                return at + 1;
            }
        }
        return sql.length();
    }

    /** Returns the end of a text such as $tag$…$tag$. 0: it is not one. */
    private static int dollars(String sql, int from) {
        int end = from + 1;
        while (isWord(sql, end) && sql.charAt(end) != '$') {
            end++;
        }
        boolean begins = end < sql.length() && sql.charAt(end) == '$' && !Character.isDigit(sql.charAt(from + 1));
        return begins ? behind(sql, sql.substring(from, end + 1), end + 1) : 0;
    }

    private static boolean isWord(String sql, int at) {
        return at >= 0 && at < sql.length()
                && (Character.isLetterOrDigit(sql.charAt(at)) || "_$".indexOf(sql.charAt(at)) >= 0);
    }
}
