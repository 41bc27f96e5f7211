// Package config is the configuration of cdc-relay: the keys, their defaults, where values come from, and what is
// allowed. [Load] takes flags before environment before file before [Default], and reports every problem at once, each
// with its key, where the value was set, the value (secrets masked) and what is allowed.
//
// It is pure: it reads what it is given (the caller passes the file's bytes and the environment), it opens no
// connection, and it does not know what the values do.
//
// Tested by tables of values that are allowed and refused, key by key and in files.
package config
