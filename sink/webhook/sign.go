package webhook

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// How secrets begin, and how long they are, in bytes (Standard Webhooks 1.0.0, "Signature scheme").
const (
	symmetric, asymmetric    = "whsec_", "whsk_"
	shortestKey, longestHMAC = 24, 64
)

// secretAge is how old what was read of a secret file may be.
const secretAge = 2 * time.Second

// secret signs: one of the two is set.
type secret struct {
	shared  []byte
	private ed25519.PrivateKey
}

// parseSecrets reads secrets with spaces or line ends between them. Its errors tell nothing of what they are.
func parseSecrets(text string) (all []secret, err error) {
	for i, field := range strings.Fields(text) {
		var s secret
		encoded, isShared := strings.CutPrefix(field, symmetric)
		if !isShared {
			var isPrivate bool
			if encoded, isPrivate = strings.CutPrefix(field, asymmetric); !isPrivate {
				return nil, fmt.Errorf("secret %d begins neither with %s nor with %s", i+1, symmetric, asymmetric)
			}
		}
		key, err := base64.StdEncoding.DecodeString(encoded)
		switch {
		case err != nil:
			return nil, fmt.Errorf("secret %d is not base64 after its prefix", i+1)
		case isShared && (len(key) < shortestKey || len(key) > longestHMAC):
			return nil, fmt.Errorf("secret %d has %d bytes; want %d to %d", i+1, len(key), shortestKey, longestHMAC)
		case isShared:
			s.shared = key
		case len(key) == ed25519.SeedSize:
			s.private = ed25519.NewKeyFromSeed(key)
		case len(key) == ed25519.PrivateKeySize:
			s.private = key
		default:
			return nil, fmt.Errorf("secret %d has %d bytes; want %d, or %d with the public key", i+1, len(key),
				ed25519.SeedSize, ed25519.PrivateKeySize)
		}
		all = append(all, s)
	}
	return all, nil
}

// sign appends the signature of the content: id, timestamp and body, joined by dots.
func (s secret) sign(to []byte, content []byte) []byte {
	if s.private != nil {
		return base64.StdEncoding.AppendEncode(append(to, "v1a,"...), ed25519.Sign(s.private, content))
	}
	mac := hmac.New(sha256.New, s.shared)
	_, _ = mac.Write(content)
	return base64.StdEncoding.AppendEncode(append(to, "v1,"...), mac.Sum(nil))
}

// signature is the header's value, empty without secrets.
func signature(secrets []secret, id, timestamp string, body []byte) string {
	if len(secrets) == 0 {
		return ""
	}
	content := make([]byte, 0, len(id)+len(timestamp)+2+len(body))
	content = append(append(content, id...), '.')
	content = append(append(content, timestamp...), '.')
	content = append(content, body...)
	var list []byte
	for i, s := range secrets {
		if i > 0 {
			list = append(list, ' ')
		}
		list = s.sign(list, content)
	}
	return string(list)
}

// keyring has the secrets of an endpoint.
type keyring struct {
	inline, file string // where they are; set once

	mu   sync.Mutex // guards what follows
	read time.Time
	kept []secret
}

// secrets are the present ones.
func (k *keyring) secrets() ([]secret, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.read.IsZero() && (k.file == "" || time.Since(k.read) < secretAge) {
		return k.kept, nil
	}
	text := k.inline
	if k.file != "" {
		content, err := os.ReadFile(k.file)
		if err != nil {
			return nil, fmt.Errorf("read the webhook secret: %w", err)
		}
		text = string(content)
	}
	secrets, err := parseSecrets(text)
	if err == nil && k.file != "" && len(secrets) == 0 {
		err = errors.New("it is empty")
	}
	if err != nil {
		return nil, fmt.Errorf("read the webhook secret in %s: %w", k.file, err)
	}
	k.kept, k.read = secrets, time.Now()
	return secrets, nil
}
