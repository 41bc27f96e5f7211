// Package resident gives back the memory in which pages of the program file lie. A start touches most of the file once:
// packages set themselves up, the configuration is read, the console's pages are compressed. Linux keeps those pages in
// the process, with their neighbours, for as long as nobody else needs the memory.
//
// Tested on Linux; elsewhere there is nothing to test.
package resident

// Release lets go of the file's pages. What runs brings its own back, at a microsecond for sixteen pages, from the
// system's cache of files; the others stay away. It does nothing where the system is not Linux.
func Release() error { return release() }
