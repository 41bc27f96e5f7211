// Package chaos breaks everything around two relays and the relays themselves, at random and again and again, under
// load, and has the independent judge compare what was committed with what the topics hold. It has tests only:
//
//	make chaos                                        60 s or so, as in CI
//	make chaos ARGS="-faults 200 -rate 2000"          by hand, on a quiet machine; prints tables for the lab
//	make chaos ARGS="-faults 200 -seed 7 -only 'relay killed,slot dropped'"
//
// A seed decides which faults come, in which order, and how long each lasts. What the processes do in the meantime it
// does not decide: a run that fails is seldom the same a second time.
package chaos
