package inbox

import (
	"errors"
	"fmt"
	"regexp"
)

// Pattern classifies errors by their text.
type Pattern struct {
	Text *regexp.Regexp
	As   func(error) error // [Permanent], [Outage], or a function that calls [RetryAfter]; nil: an attempt
}

// ByMessage returns a Config.Classify function: the first pattern that matches an error's text decides. Other errors
// are left as they are.
//
//	Classify: inbox.ByMessage(
//		inbox.Pattern{regexp.MustCompile(`no such customer`), inbox.Permanent},
//		inbox.Pattern{regexp.MustCompile(`connection refused|503`), inbox.Outage},
//	)
func ByMessage(patterns ...Pattern) func(error) error {
	return func(err error) error {
		text := err.Error()
		for _, p := range patterns {
			switch {
			case p.Text == nil || !p.Text.MatchString(text):
				continue
			case p.As == nil:
				return err
			}
			return p.As(err)
		}
		return err
	}
}

// classified is a handler's error as Config.Classify sees it. nil would hide the failure, so the error stays then.
func (s *session) classified(err error) (seen error) {
	if err == nil || s.c.config.Classify == nil {
		return err
	}
	defer func() {
		if p := recover(); p != nil {
			seen = errors.Join(err, fmt.Errorf("inbox: Config.Classify panicked: %v", p))
		}
	}()
	if seen = s.c.config.Classify(err); seen == nil {
		return err
	}
	return seen
}
