package brokers

import (
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-msk-iam-sasl-signer-go/signer"
)

// signMSK signs a token for Amazon MSK in a region, with the credentials that AWS's SDK finds: in the environment, in
// its files, of a web identity, of the container or of the machine.
func signMSK(ctx context.Context, region string) (token string, until time.Time, err error) {
	token, millis, err := signer.GenerateAuthToken(ctx, region)
	if err != nil {
		return "", until, fmt.Errorf("sign a token with AWS's credentials: %w", err)
	}
	return token, time.UnixMilli(millis), nil
}
