package main

import "errors"

type demoCommand struct{}

// Run is not built yet.
func (demoCommand) Run(a *app) error { return errors.New("demo is not built yet") }
