// Package redisconn is shared by the drivers on Redis: a client without retries of its own, of one server, of the
// master that Sentinels name, or of a cluster, whose redirections it follows; whose trouble an answer is, whether the
// server answers at all, and how durable it is.
//
// Tested by the drivers on it, in sink/redis, on real servers behind proxies that cut.
package redisconn
