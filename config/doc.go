// Package config defines the configuration of cdc-relay: keys, defaults, allowed values, and where values come from.
// [Load] merges flags, environment, file and [Default], in this order of precedence, and reports every problem at once,
// each with its key, source, value (secrets masked) and what is allowed.
//
// The package opens no connection and reads no file or environment: the caller passes both to Load.
//
// Tested by tables of values that are allowed and refused, key by key and in files.
package config
