package sink

// engineState is what the engine keeps in a record that it owns.
type engineState struct{}
