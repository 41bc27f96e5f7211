package show

import (
	"fmt"
	"strings"

	"github.com/cdc-relay/cdc-relay/cmd/internal/cli"
	"github.com/cdc-relay/cdc-relay/internal/doctor/check"
)

// Report prints what the doctor has found, a line for each check.
func Report(a *cli.App, r check.Report) {
	colours := map[check.Level]string{check.OK: cli.Green, check.Warn: cli.Yellow, check.Fail: cli.Red}
	for _, f := range r.Checks {
		line := a.Paint(colours[f.Level], fmt.Sprintf("%-4s", f.Level)) + "  " + f.Name + ": " + f.Text
		if f.Fix != "" {
			line += "; fix: " + f.Fix
		}
		cli.Fprintln(a.Out, strings.ReplaceAll(line, "\n", " "))
	}
}
