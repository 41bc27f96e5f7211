package main

import "errors"

type initCommand struct{}

// Run is not built yet.
func (initCommand) Run(a *app) error { return errors.New("init is not built yet") }
