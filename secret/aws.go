package secret

import (
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-msk-iam-sasl-signer-go/signer"
)

// MSK is the source that signs tokens for Amazon MSK in a region, with the credentials that AWS's SDK finds: in the
// environment, in its files, of a web identity, of the container or of the machine. There is one for each region in a
// process.
func MSK(key, region string) *Source {
	return shared(key, region, func(ctx context.Context) (answer, error) {
		a := answer{asked: time.Now()}
		token, millis, err := signer.GenerateAuthToken(ctx, region)
		if err != nil {
			return a, fmt.Errorf("sign a token with AWS's credentials: %w", err)
		}
		a.password, a.until = token, time.UnixMilli(millis)
		return a, nil
	})
}
