//go:build race

package sink_test

const raceDetector = true
