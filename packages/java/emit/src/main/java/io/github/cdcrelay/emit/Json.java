package io.github.cdcrelay.emit;

import java.util.Arrays;
import java.util.Map;
import java.util.Objects;
import java.util.regex.Pattern;

/**
 * A payload that is JSON already, such as that of Jackson's {@code writeValueAsString}. Postgres refuses what is not
 * JSON.
 */
public record Json(String text) {
    private static final Pattern NUMBER = Pattern.compile("-?\\d+(\\.\\d+)?([eE][+-]?\\d+)?");

    public Json {
        Objects.requireNonNull(text, "emit: the text of Json is null: pass null as the payload for a tombstone");
    }

    /** Encodes plain values. */
    static String encode(Object value) {
        var out = new StringBuilder();
        write(out, value);
        return out.toString();
    }

    private static void write(StringBuilder out, Object value) {
        if (value == null || value instanceof Boolean) {
            out.append(value);
        } else if (value instanceof Json json) {
            out.append(json.text);
        } else if (value instanceof CharSequence || value instanceof Character) {
            quote(out, value.toString());
        } else if (value instanceof Number && NUMBER.matcher(value.toString()).matches()) {
            out.append(value);
        } else if (value instanceof Map<?, ?> map) {
            object(out, map);
        } else if (value instanceof Iterable<?> list) {
            list(out, list);
        } else if (value instanceof Object[] list) {
            list(out, Arrays.asList(list));
        } else {
            throw new IllegalArgumentException("a payload can't have a " + value.getClass().getName() + " (" + value
                    + "): pass Map, Iterable, String, Number, Boolean or null, or new Json(text)");
        }
    }

    private static void object(StringBuilder out, Map<?, ?> map) {
        var before = '{';
        for (var entry : map.entrySet()) {
            if (!(entry.getKey() instanceof String name)) {
                throw new IllegalArgumentException("a payload's keys must be strings, got " + entry.getKey());
            }
            quote(out.append(before), name);
            write(out.append(':'), entry.getValue());
            before = ',';
        }
        out.append(before == '{' ? "{}" : "}");
    }

    private static void list(StringBuilder out, Iterable<?> list) {
        var before = '[';
        for (var value : list) {
            write(out.append(before), value);
            before = ',';
        }
        out.append(before == '[' ? "[]" : "]");
    }

    /** Half of a surrogate pair becomes an escape, which Postgres refuses. In UTF-8 it would become a question mark. */
    private static void quote(StringBuilder out, String text) {
        out.append('"');
        for (int i = 0; i < text.length(); i++) {
            char c = text.charAt(i);
            if (c == '"' || c == '\\') {
                out.append('\\').append(c);
            } else if (Character.isSupplementaryCodePoint(text.codePointAt(i))) {
                out.append(c).append(text.charAt(++i));
            } else if (c < ' ' || Character.isSurrogate(c)) {
                out.append(String.format("\\u%04x", (int) c));
            } else {
                out.append(c);
            }
        }
        out.append('"');
    }
}
