package main

import "errors"

type verifyCommand struct{}

// Run is not built yet.
func (verifyCommand) Run(a *app) error { return errors.New("verify is not built yet") }
