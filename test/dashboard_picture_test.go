package test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

var picture = flag.String("dashboard-picture", "", "where the picture of the dashboard goes; empty: none is made")

// The picture of the dashboard in the docs: three minutes of a real relay under load, in which its broker is away for
// twenty seconds, events die, and others wait for a topic. It judges what it draws as the test of the alerts does.
// Breaks it catches: a panel that would be empty. Seen to fail with a label in one query that no series has.
func TestPictureOfTheDashboard(t *testing.T) {
	if *picture == "" {
		t.Skip("made by make dashboard-picture; the dashboard's queries are tested with the alerts")
	}
	s := startScenario(t, harness.Postgres(t), harness.NewOwnKafka(t, harness.KafkaConfig{}), "reconcile.interval", "5s")
	prometheus := harness.StartPrometheus(t, "groups: []", s.relay)
	began := time.Now()
	// A picture has a time axis: the faults come at their seconds.
	at := func(second int) { time.Sleep(time.Until(began.Add(time.Duration(second) * time.Second))) }
	load := s.load(t, harness.Workload{Rate: 150, Aggregates: 50})
	at(45)
	s.pg.Exec(t, `INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload)
		SELECT 'later', 'k' || i, 'made', '{}' FROM generate_series(1, 12) i`)
	at(75)
	s.kafka.Nodes[0].Stop(t)
	at(95)
	s.kafka.Nodes[0].Start(t)
	at(125)
	s.pg.Exec(t, `INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload, headers)
		SELECT 'order', 'bad' || i, 'made', '{}', '[]' FROM generate_series(1, 5) i`)
	at(150)
	s.kafka.CreateTopic(t, s.settings.Topic("later"), 1, nil)
	at(180)
	panels := asked(t, prometheus, began)
	load.Stop(t)
	wantPanels(t, panels)
	if err := os.WriteFile(*picture, lightened(t, drawn(t, panels)), 0o644); err != nil {
		t.Fatal(err)
	}
}

// drawn is what Chromium makes of the panels.
func drawn(t *testing.T, panels []panel) (picture []byte) {
	t.Helper()
	read := func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	data, err := json.Marshal(panels)
	if err != nil {
		t.Fatal(err)
	}
	page := strings.NewReplacer("/*uPlot.css*/", read("../admin/console/vendor/uPlot.min.css"),
		"/*uPlot.js*/", read("../admin/console/vendor/uPlot.iife.min.js"), "/*panels*/", string(data)).
		Replace(read("testdata/dashboard.html"))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write([]byte(page))
	}))
	defer server.Close()
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(harness.Program(t, "chromium", "chromium")))
	if os.Getuid() == 0 {
		options = append(options, chromedp.NoSandbox) // Chromium has none for root
	}
	allocated, endAllocator := chromedp.NewExecAllocator(context.Background(), options...)
	defer endAllocator()
	ctx, end := chromedp.NewContext(allocated)
	defer end()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := chromedp.Do(ctx, chromedp.EmulateViewport(1440, 900), chromedp.Navigate(server.URL)); err != nil {
		t.Fatalf("open the page: %v", err)
	}
	if title, err := chromedp.Run(ctx, chromedp.Evaluate[string]("document.title")); err != nil || title != "drawn" {
		t.Fatalf("the page is not drawn: its title is %q, %v", title, err)
	}
	if picture, err = chromedp.Run(ctx, chromedp.FullScreenshot(100)); err != nil {
		t.Fatalf("take the picture: %v", err)
	}
	return picture
}

// lightened is the picture in the 256 colours that it has most of, in fewer bytes: the program carries its docs.
func lightened(t *testing.T, picture []byte) []byte {
	t.Helper()
	full, err := png.Decode(bytes.NewReader(picture))
	if err != nil {
		t.Fatal(err)
	}
	count, box := map[color.Color]int{}, full.Bounds()
	for y := box.Min.Y; y < box.Max.Y; y++ {
		for x := box.Min.X; x < box.Max.X; x++ {
			count[full.At(x, y)]++
		}
	}
	most := slices.SortedFunc(maps.Keys(count), func(a, b color.Color) int { return count[b] - count[a] })
	small := image.NewPaletted(box, most[:min(len(most), 256)])
	draw.Draw(small, box, full, box.Min, draw.Src)
	var out bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, small); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
