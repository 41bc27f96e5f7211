//go:build !bench_nometrics

package meter

// instrumented is false only in the build with which `make bench` measures what counting each event costs.
const instrumented = true
