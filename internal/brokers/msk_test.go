package brokers

import (
	"encoding/base64"
	"net/url"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/access/secret"
)

// What is signed can be looked at; whether MSK takes it cannot be tried here. Breaks it catches: a token for another
// action, region or time, one signed again for each connection, and a key that is shown. Seen to fail with a fixed
// region.
func TestATokenOfMSKIsASignedURL(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
	s := secret.Signed("kafka.sasl.aws_region", "eu-west-1", signMSK)
	token, err := s.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	text, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		t.Fatalf("the token %s: %v", token, err)
	}
	u, err := url.Parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	if u.Host != "kafka.eu-west-1.amazonaws.com" || q.Get("Action") != "kafka-cluster:Connect" ||
		q.Get("X-Amz-Expires") != "900" || !strings.HasPrefix(q.Get("X-Amz-Credential"), "AKIDEXAMPLE/") ||
		!strings.HasSuffix(q.Get("X-Amz-Credential"), "/eu-west-1/kafka-cluster/aws4_request") ||
		len(q.Get("X-Amz-Signature")) != 64 || strings.Contains(string(text), "hunter2") {
		t.Errorf("got %s", text)
	}
	if again, err := s.Read(t.Context()); err != nil || again != token {
		t.Errorf("a second read: got another token, want the first until it expires")
	}
}

// Breaks it catches: a machine without credentials that waits without end, or does not say what is missing. Seen to
// fail with the error left out.
func TestMissingAWSCredentialsAreSaid(t *testing.T) {
	for name, value := range map[string]string{"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "",
		"AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": "/no/such/file",
		"AWS_SHARED_CREDENTIALS_FILE": "/no/such/file"} {
		t.Setenv(name, value)
	}
	_, err := secret.Signed("kafka.sasl.aws_region", "eu-west-2", signMSK).Read(t.Context())
	if err == nil || !strings.Contains(err.Error(), "kafka.sasl.aws_region: sign a token with AWS's credentials: ") {
		t.Errorf("got %v, want that there are no credentials", err)
	}
}
