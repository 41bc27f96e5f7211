//go:build race

package recordset

const raceDetector = true
