//go:build !linux

package db

import "syscall"

// setUserTimeout does nothing: TCP_USER_TIMEOUT is Linux's. Keep-alive still finds an idle cut connection.
func setUserTimeout(_, _ string, _ syscall.RawConn) error { return nil }
