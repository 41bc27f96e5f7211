package webhook

import (
	"strings"
	"testing"
)

// The vectors of the reference libraries: who verifies with one of these takes what is signed here. Breaks it catches:
// another content, another key, another encoding. Seen to fail with the timestamp left out of what is signed.
func TestSignaturesAreTheReferenceLibraries(t *testing.T) {
	const id, timestamp, body = "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", `{"test": 2432232314}`
	const (
		shared  = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
		private = "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg=="
		byHMAC  = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
		byKey   = "v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg=="
	)
	for secrets, want := range map[string]string{
		shared: byHMAC, private: byKey, shared + "\n" + private + "\n": byHMAC + " " + byKey, "": "", " \n": "",
	} {
		parsed, err := parseSecrets(secrets)
		if err != nil {
			t.Fatal(err)
		}
		if got := signature(parsed, id, timestamp, []byte(body)); got != want {
			t.Errorf("signature: got %q, want %q", got, want)
		}
	}
}

// Breaks it catches: a secret that is cut or weak and signs all the same; an error that shows it. Seen to fail with
// lengths not looked at, and with the secret in the error.
func TestSecretsThatAreNoneAreRefused(t *testing.T) {
	for _, c := range []struct{ name, secret string }{
		{"no prefix", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"},
		{"public key", "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4="},
		{"not base64", "whsec_!fKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"},
		{"too short", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZI"},
		{"too long", "whsec_" + strings.Repeat("AAAA", 22)},
		{"half a key", "whsk_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"},
	} {
		_, err := parseSecrets("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw " + c.secret)
		if err == nil || !strings.Contains(err.Error(), "secret 2") {
			t.Errorf("%s: got %v, want secret 2 refused", c.name, err)
		} else if _, key, _ := strings.Cut(c.secret, "_"); key != "" && strings.Contains(err.Error(), key) {
			t.Errorf("%s: the error shows the secret: %v", c.name, err)
		}
	}
}
