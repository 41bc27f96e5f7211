//go:build !race

package recordset

const raceDetector = false
