package test

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
