// Package redisconn is what the drivers on Redis share: a client that repeats nothing by itself, whose trouble an
// answer is, whether the server answers at all, and how durable it is.
//
// Tested by the drivers on it, sink/redisstream and sink/bullmq, on real servers behind a proxy that cuts.
package redisconn
