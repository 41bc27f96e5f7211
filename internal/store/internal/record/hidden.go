package record

// HiddenError reports that the SQL side would see, or change, other rows than there are in a table. The relay must not
// go on: what it does not see it would take for published, or gone.
type HiddenError struct {
	What   string
	Repair string // SQL, or what to do
}

func (e *HiddenError) Error() string { return e.What + ": " + e.Repair }

// Add adds one more reason.
func (e *HiddenError) Add(what, repair string) {
	if e.What != "" {
		e.What, e.Repair = e.What+"; ", e.Repair+" "
	}
	e.What, e.Repair = e.What+what, e.Repair+repair
}
