package harness

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	// elasticMQVersion is that of test/elasticmq/pom.xml.
	elasticMQVersion = "1.7.1"
	// motoVersion is that of Python's package index, flaskVersion that of what its server is built on, and jsonPathVersion
	// that of what its EventBridge needs.
	motoVersion, flaskVersion, flaskCORSVersion, jsonPathVersion = "5.2.5", "3.1.3", "6.0.5", "1.8.0"
)

// startPatience bounds the start of a JVM or of Python on a machine that is busy with much else.
const startPatience = 5 * time.Minute

// AWSRegion is where the servers of AWS's protocols are.
const AWSRegion = "us-east-1"

// ElasticMQ is a server that speaks SQS and keeps its queues in memory, a process of its own.
type ElasticMQ struct {
	server
	options []string // of Java
	URL     string   // http://host:port
}

// Moto is a process that speaks the protocols of AWS's services and keeps what they have in memory.
type Moto struct {
	server
	URL string // http://host:port
}

// AWSLogin gives this process, and those that the test starts, credentials that such servers take, and nothing of the
// developer's own.
func AWSLogin(t testing.TB) {
	t.Helper()
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": "relay", "AWS_SECRET_ACCESS_KEY": "of-the-tests", "AWS_SESSION_TOKEN": "", "AWS_PROFILE": "",
		"AWS_REGION": AWSRegion, "AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull,
		"AWS_EC2_METADATA_DISABLED": "true", "AWS_WEB_IDENTITY_TOKEN_FILE": "", "AWS_ROLE_ARN": "",
	} {
		t.Setenv(name, value)
	}
}

// StartElasticMQ starts a server for this test alone, which has the limits of SQS. The options are Java's; without any
// it starts soon and is slow.
func StartElasticMQ(t testing.TB, options ...string) *ElasticMQ {
	t.Helper()
	needsServers(t)
	s := &ElasticMQ{server: server{name: "elasticmq", patience: startPatience}, options: options}
	if options == nil {
		// One compiler and a small heap: it starts in half the time.
		s.options = []string{"-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Xmx512m"}
	}
	s.of(t, s.begin(t.Context(), func() error { return s.describe(t.Context()) }))
	return s
}

func (s *ElasticMQ) describe(ctx context.Context) error {
	jars, err := fromMaven(ctx, "elasticmq-"+elasticMQVersion, "elasticmq", copyJars(""))
	if err != nil {
		return err
	}
	java, err := exec.LookPath("java")
	if err != nil {
		return fmt.Errorf("find Java: %w", err)
	}
	host, port, err := net.SplitHostPort(s.Addr)
	if err != nil {
		return fmt.Errorf("read the address of ElasticMQ: %w", err)
	}
	s.URL = "http://" + s.Addr
	s.command.Path = java
	s.command.Args = append(s.options, "-Dconfig.file=elasticmq.conf", "-cp", filepath.Join(jars, "*"),
		"org.elasticmq.server.Main")
	s.ready = s.listens
	config := fmt.Sprintf(`include classpath("application.conf")
rest-sqs { enabled = true, bind-hostname = %q, bind-port = %s, sqs-limits = strict }
rest-stats { enabled = false }
node-address { protocol = http, host = %q, port = %s, context-path = "" }
aws { region = %s, accountId = 000000000000 }
`, host, port, host, port, AWSRegion)
	if err := os.WriteFile(filepath.Join(s.dir, "elasticmq.conf"), []byte(config), 0o600); err != nil {
		return fmt.Errorf("write the configuration of ElasticMQ: %w", err)
	}
	return nil
}

// motoProgram is moto's server, which keeps the parsers that it would make eight of for each event of EventBridge.
const motoProgram = `import functools
import jsonpath_ng.ext as paths
paths.parse = functools.cache(paths.parse)
from moto.server import main
main()`

// StartMoto starts a server for this test alone.
func StartMoto(t testing.TB) *Moto {
	t.Helper()
	needsServers(t)
	s := &Moto{server: server{name: "moto", patience: startPatience}}
	s.of(t, s.begin(t.Context(), func() error { return s.describe(t.Context()) }))
	return s
}

func (s *Moto) describe(ctx context.Context) error {
	packages, err := cached("moto-"+motoVersion+"-jsonpath-"+jsonPathVersion, func(_, fetched string) error {
		return runFetch(ctx, "python3", "-m", "pip", "install", "--quiet", "--target", fetched, "moto=="+motoVersion,
			"flask=="+flaskVersion, "flask-cors=="+flaskCORSVersion, "jsonpath-ng=="+jsonPathVersion)
	})
	if err != nil {
		return err
	}
	if s.command.Path, err = exec.LookPath("python3"); err != nil {
		return fmt.Errorf("find Python: %w", err)
	}
	host, port, err := net.SplitHostPort(s.Addr)
	if err != nil {
		return fmt.Errorf("read the address of moto: %w", err)
	}
	s.URL = "http://" + s.Addr
	s.command.Args = []string{"-c", motoProgram, "-H", host, "-p", port}
	// Without the login of AWSLogin: to moto's own SDK a profile without a name is one that is missing.
	environ := slices.DeleteFunc(os.Environ(), func(entry string) bool { return strings.HasPrefix(entry, "AWS_") })
	s.command.Env = append(environ, "PYTHONPATH="+packages, "PYTHONDONTWRITEBYTECODE=1")
	s.ready = s.listens
	return nil
}
