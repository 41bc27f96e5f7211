//go:build bench_nometrics

package meter

const instrumented = false
