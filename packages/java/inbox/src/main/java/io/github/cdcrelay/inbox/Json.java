package io.github.cdcrelay.inbox;

import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Pattern;

/** Reads JSON (RFC 8259) as maps, lists, strings, Long, BigDecimal and Boolean. */
final class Json {
    private static final Pattern NUMBER = Pattern.compile("-?(0|[1-9]\\d*)(\\.\\d+)?([eE][+-]?\\d+)?");
    private static final int LONGEST_NUMBER = 1000; // the time to read one grows with the square
    private static final int DEEPEST = 1000; // below what the stack of a thread holds
    private final String text;
    private int at;
    private int depth;

    private Json(String text) {
        this.text = text;
    }

    /** What is not JSON. */
    static final class Malformed extends Exception {
        private static final long serialVersionUID = 1;

        Malformed(String message) {
            super(message);
        }
    }

    static String utf8(byte[] bytes) throws Malformed {
        try {
            return StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(bytes)).toString();
        } catch (CharacterCodingException e) {
            throw new Malformed("it is not UTF-8");
        }
    }

    static Object parse(String text) throws Malformed {
        var json = new Json(text);
        var value = json.value();
        json.end();
        return value;
    }

    /** Returns the members of an object, each as its text. */
    static Map<String, String> members(String text) throws Malformed {
        var json = new Json(text);
        var members = new LinkedHashMap<String, String>();
        json.object((name, from, value) -> members.put(name, text.substring(from, json.at)));
        json.end();
        return members;
    }

    private void end() throws Malformed {
        if (next() != 0 || at < text.length()) {
            throw wrong();
        }
    }

    /** Returns the next character that is no space, which is not taken. 0: the end. */
    private char next() {
        while (at < text.length() && " \t\r\n".indexOf(text.charAt(at)) >= 0) {
            at++;
        }
        return at < text.length() ? text.charAt(at) : 0;
    }

    private Object value() throws Malformed {
        if (++depth > DEEPEST) {
            throw new Malformed("it is nested too deeply");
        }
        try {
            return switch (next()) {
                case '{' -> {
                    var map = new LinkedHashMap<String, Object>();
                    object((name, from, value) -> map.put(name, value));
                    yield map;
                }
                case '[' -> list();
                case '"' -> string();
                case 't' -> word("true", true);
                case 'f' -> word("false", false);
                case 'n' -> word("null", null);
                default -> number();
            };
        } finally {
            depth--;
        }
    }

    private interface Member {
        void found(String name, int from, Object value);
    }

    private void object(Member member) throws Malformed {
        take('{');
        if (next() == '}') {
            at++;
            return;
        }
        while (true) {
            next();
            var name = string();
            next();
            take(':');
            next();
            int from = at;
            member.found(name, from, value());
            if (next() == '}') {
                at++;
                return;
            }
            take(',');
        }
    }

    private List<Object> list() throws Malformed {
        var list = new ArrayList<Object>();
        take('[');
        if (next() == ']') {
            at++;
            return list;
        }
        while (true) {
            list.add(value());
            if (next() == ']') {
                at++;
                return list;
            }
            take(',');
        }
    }

    private String string() throws Malformed {
        take('"');
        var out = new StringBuilder();
        while (at < text.length()) {
            char c = text.charAt(at++);
            if (c == '"') {
                return out.toString();
            } else if (c < ' ') {
                at--;
                throw wrong();
            }
            out.append(c == '\\' ? escaped() : c);
        }
        throw wrong();
    }

    private char escaped() throws Malformed {
        if (at == text.length()) {
            throw wrong();
        }
        char c = text.charAt(at++);
        int plain = "\"\\/bfnrt".indexOf(c);
        if (plain >= 0) {
            return "\"\\/\b\f\n\r\t".charAt(plain);
        }
        int unit = 0;
        for (int i = 0; i < 4; i++) {
            char hex = c == 'u' && at < text.length() ? Character.toLowerCase(text.charAt(at)) : ' ';
            int digit = "0123456789abcdef".indexOf(hex);
            if (digit < 0) {
                throw wrong();
            }
            unit = unit << 4 | digit;
            at++;
        }
        return (char) unit;
    }

    private Object number() throws Malformed {
        var matcher = NUMBER.matcher(text).region(at, text.length());
        if (!matcher.lookingAt()) {
            throw wrong();
        }
        at = matcher.end();
        var digits = matcher.group();
        if (digits.length() > LONGEST_NUMBER) {
            throw new Malformed("it has a number of " + digits.length() + " characters");
        }
        try {
            var number = new BigDecimal(digits);
            boolean whole = matcher.group(2) == null && matcher.group(3) == null;
            return whole && number.toBigInteger().bitLength() < 64 ? (Object) number.longValueExact() : number;
        } catch (NumberFormatException e) { // an exponent beyond those of BigDecimal
            throw new Malformed("its number " + digits + " is out of range");
        }
    }

    private Object word(String word, Object value) throws Malformed {
        if (!text.startsWith(word, at)) {
            throw wrong();
        }
        at += word.length();
        return value;
    }

    private void take(char c) throws Malformed {
        if (at == text.length() || text.charAt(at) != c) {
            throw wrong();
        }
        at++;
    }

    private Malformed wrong() {
        return at < text.length() ? new Malformed(String.format("unexpected U+%04X at %d", text.codePointAt(at), at))
                : new Malformed("it ends too early");
    }
}
