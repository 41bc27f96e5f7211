package web

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// Break it catches: an empty body under 200 when what is to be told cannot be JSON. Seen to fail with the code written
// first.
func TestAnswerThatIsNoJSONIsAnError(t *testing.T) {
	for _, row := range []struct {
		body any
		code int
	}{{map[string]int{"n": 1}, http.StatusOK},
		{time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC), http.StatusInternalServerError}} {
		w := httptest.NewRecorder()
		answer(w, http.StatusOK, row.body)
		if w.Code != row.code || !json.Valid(w.Body.Bytes()) {
			t.Errorf("%v: got %d and %q, want %d and JSON", row.body, w.Code, w.Body, row.code)
		}
	}
}

// The reason names what the request had. Seen to fail without the escape.
func TestRefusalOnAPageBringsNoCodeAlong(t *testing.T) {
	w := httptest.NewRecorder()
	showRefusal(w, http.StatusForbidden, errors.New(`the host "<script>alert('x')</script>" & {{reason}}`))
	const want = "<p>the host &#34;&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&#34; &amp; {{reason}}.</p>"
	if got := w.Body.String(); strings.Count(got, "<script") != 0 || !strings.Contains(got, want) {
		t.Errorf("got %s, want %s in it", got, want)
	}
}
