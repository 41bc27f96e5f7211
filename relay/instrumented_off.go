//go:build bench_nometrics

package relay

const instrumented = false
