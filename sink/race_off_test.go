//go:build !race

package sink_test

const raceDetector = false
