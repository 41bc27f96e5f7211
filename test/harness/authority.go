package harness

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority signs certificates for tests.
type Authority struct {
	File string // its certificate, PEM

	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	dir         string
}

// Certificate is a certificate with its key, in the files that clients and brokers want.
type Certificate struct {
	CertFile string // PEM
	KeyFile  string // PEM, PKCS #8
	Both     string // key and certificate in one file: a keystore of the type PEM
}

// NewAuthority makes an authority that no one trusts yet.
func NewAuthority(t testing.TB, name string) *Authority {
	t.Helper()
	a := &Authority{key: newKey(t), dir: t.TempDir()}
	template := &x509.Certificate{
		SerialNumber: newSerial(t), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageCertSign, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	if err != nil {
		t.Fatalf("make an authority: %v", err)
	}
	if a.certificate, err = x509.ParseCertificate(der); err != nil {
		t.Fatalf("make an authority: %v", err)
	}
	a.File = a.write(t, "ca.pem", "CERTIFICATE", der)
	return a
}

// Issue makes a certificate for localhost and the given host names, for servers and clients, that ends at a time.
func (a *Authority) Issue(t testing.TB, name string, ends time.Time, hosts ...string) Certificate {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber: newSerial(t), Subject: pkix.Name{CommonName: name},
		NotBefore: ends.Add(-48 * time.Hour), NotAfter: ends,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		t.Fatalf("make a certificate: %v", err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatalf("make a certificate: %v", err)
	}
	c := Certificate{
		CertFile: a.write(t, name+".pem", "CERTIFICATE", der),
		KeyFile:  a.write(t, name+"-key.pem", "PRIVATE KEY", private),
		Both:     filepath.Join(a.dir, name+"-both.pem"),
	}
	CopyFile(t, c.Both, c.KeyFile, c.CertFile)
	return c
}

// CopyFile writes the contents of files, one behind the other, in the place of a file: what a rotation of secrets does.
func CopyFile(t testing.TB, to string, from ...string) {
	t.Helper()
	var all bytes.Buffer
	for _, f := range from {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(b)
	}
	if err := os.WriteFile(to+".new", all.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(to+".new", to); err != nil {
		t.Fatal(err)
	}
}

func (a *Authority) write(t testing.TB, name, kind string, der []byte) string {
	t.Helper()
	path := filepath.Join(a.dir, name)
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatalf("make a key: %v", err)
	}
	return key
}

func newSerial(t testing.TB) *big.Int {
	t.Helper()
	n, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatalf("make a serial number: %v", err)
	}
	return n
}
