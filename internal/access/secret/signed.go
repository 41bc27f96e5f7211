package secret

import (
	"context"
	"time"
)

// Signer makes a token for a region, and says until when the token is valid.
type Signer func(ctx context.Context, region string) (token string, until time.Time, err error)

// Signed returns the source whose tokens sign makes for a region. There is one per region in a process, so that
// connections share a token while it is valid.
func Signed(key, region string, sign Signer) *Source {
	return shared(key, region, func(ctx context.Context) (answer, error) {
		a := answer{asked: time.Now()}
		var err error
		a.password, a.until, err = sign(ctx, region)
		return a, err
	})
}
