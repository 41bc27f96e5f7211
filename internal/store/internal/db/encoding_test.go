package db

import "testing"

// Breaks it catches: a text that the database refuses, with which the statement fails at each attempt; one that is
// changed where the database has its characters. Seen to fail without the transliteration.
func TestTextsFitTheEncodingOfTheDatabase(t *testing.T) {
	const text = "{\"id\": \"00-…\"} é – Łódź 了"
	for encoding, want := range map[string]string{
		"UTF8": text, "SQL_ASCII": text,
		"LATIN1": "{\"id\": \"00-...\"} é - \\u0141ód\\u017a \\u4e86 [\\u: a character that is not in LATIN1]",
		"EUC_JP": `{"id": "00-..."} \u00e9 - \u0141\u00f3d\u017a \u4e86 [\u: a character that is not in EUC_JP]`,
	} {
		s := DB{shared: new(shared)}
		s.shared.encoding.Store(&encoding)
		if got := s.Clean(text); got != want {
			t.Errorf("%s: got %s, want %s", encoding, got, want)
		}
		if got := s.Brief("plain…", 5); got != "plain" {
			t.Errorf("%s: got %s, want an ASCII text unchanged", encoding, got)
		}
	}
}
