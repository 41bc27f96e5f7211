package admin

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
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
