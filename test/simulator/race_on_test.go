//go:build race

package simulator

// raced: the race detector makes a seed ten times as dear.
const raced = true
