package main

import "errors"

type checkCommand struct{}

// Run is not built yet.
func (checkCommand) Run(a *app) error { return errors.New("check is not built yet") }
