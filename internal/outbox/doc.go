// Package outbox holds the words that the rest of cdc-relay speaks: [Event], [LSN], [Position], [Headers], [State] and
// [ErrorClass]. It is pure: no I/O, no clock, nothing but the standard library, and it imports no other package of this
// module, so that every other package may import it.
//
// Tested by every package that speaks them; what has rules of its own is tested here.
package outbox
