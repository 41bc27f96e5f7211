package io.github.cdcrelay.inbox;

import java.util.regex.Pattern;

/** Writes characters beyond ASCII as a backslash with x, u or U and hex digits, for databases that can't hold them. */
final class Escapes {
    private static final Pattern ESCAPE = Pattern.compile("\\\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U([0-9a-f]{8}))");

    private Escapes() {}

    static String escape(String text) {
        var out = new StringBuilder();
        text.codePoints().forEach(c -> {
            if (c < 0x80) {
                out.append((char) c);
            } else {
                out.append(String.format(c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", c));
            }
        });
        return out.toString();
    }

    static String undo(String text) {
        return ESCAPE.matcher(text).replaceAll(match -> {
            var digits = match.group().substring(2);
            int c = Integer.parseUnsignedInt(digits, 16);
            return Character.isValidCodePoint(c) ? java.util.regex.Matcher.quoteReplacement(Character.toString(c))
                    : java.util.regex.Matcher.quoteReplacement(match.group());
        });
    }
}
