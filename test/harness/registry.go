package harness

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/embedded/child"
)

// registryVersion must be that of test/registry/pom.xml: of the registry, and of its deserializers.
const registryVersion = "2.6.13-serdes-3.1.7"

// Registry is Apicurio Registry, a process of its own, which keeps its schemas in memory.
type Registry struct {
	server
	URL string // of Confluent's API

	own  string // of its own API, which its deserializers use
	libs string
}

// registryFiles fetches the registry and its deserializers at the first call on a machine.
func registryFiles(t testing.TB) (dir, java string) {
	t.Helper()
	java = Program(t, "java", "openjdk-17-jre-headless")
	dir, err := fromMaven(t.Context(), "registry-"+registryVersion, "registry", copyJars("libs"), unpack("app"))
	if err != nil {
		missing(t, "Apicurio Registry", err)
	}
	return dir, java
}

// NewRegistry starts a registry for this test alone, or takes the one at CDC_RELAY_TEST_REGISTRY, host:port.
func NewRegistry(t testing.TB) *Registry {
	t.Helper()
	needsServers(t)
	dir, java := registryFiles(t)
	if at := os.Getenv("CDC_RELAY_TEST_REGISTRY"); at != "" {
		r := &Registry{libs: filepath.Join(dir, "libs", "*"), server: server{Addr: at}}
		r.URL, r.own = "http://"+at+"/apis/ccompat/v7", "http://"+at+"/apis/registry/v2"
		return r
	}
	jars, err := filepath.Glob(filepath.Join(dir, "app", "*-runner.jar"))
	if err != nil || len(jars) != 1 {
		t.Fatalf("the registry's archive has %q (%v), want one program", jars, err)
	}
	r := &Registry{libs: filepath.Join(dir, "libs", "*"),
		server: server{name: "Apicurio Registry", patience: 5 * time.Minute}}
	r.of(t, r.begin(t.Context(), func() error {
		host, port, _ := strings.Cut(r.Addr, ":")
		r.URL, r.own = "http://"+r.Addr+"/apis/ccompat/v7", "http://"+r.Addr+"/apis/registry/v2"
		r.command = child.Config{Path: java, Args: []string{"-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
			"-Dquarkus.http.host=" + host, "-Dquarkus.http.port=" + port, "-jar", jars[0]}}
		r.ready = func() error { return answers(r.URL + "/subjects") }
		return nil
	}))
	return r
}

func answers(at string) error {
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get(at)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answered %s", at, response.Status)
	}
	return nil
}

// Register adds a schema to a subject: AVRO, PROTOBUF or JSON.
func (r *Registry) Register(t testing.TB, subject, kind, schema string) {
	t.Helper()
	body, err := json.Marshal(map[string]string{"schemaType": kind, "schema": schema})
	if err != nil {
		t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	response, err := http.Post(r.URL+"/subjects/"+url.PathEscape(subject)+"/versions",
		"application/vnd.schemaregistry.v1+json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if said, _ := io.ReadAll(response.Body); response.StatusCode != http.StatusOK {
		t.Fatalf("register %s: %s: %s", subject, response.Status, said)
	}
}

var decoderClasses sync.Map // by the folder of the libraries: once per test process

// Deserialize has the registry's deserializers for Java read the values, and gives them back as JSON, in order. That of
// Protobuf wants to be told the message's name.
func (r *Registry) Deserialize(t testing.TB, format string, values [][]byte, message ...string) []string {
	t.Helper()
	compile, _ := decoderClasses.LoadOrStore(r.libs, sync.OnceValues(func() (string, error) {
		classes := filepath.Join(filepath.Dir(r.libs), "..", "classes")
		source := filepath.Join(moduleDir(), "test", "registry", "Decode.java")
		said, err := exec.Command("javac", "-nowarn", "-cp", r.libs, "-d", classes, source).CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("compile %s: %w: %s", source, err, said)
		}
		return classes, nil
	}))
	classes, err := compile.(func() (string, error))()
	if err != nil {
		missing(t, "javac (Debian: openjdk-17-jdk-headless)", err)
	}
	var lines bytes.Buffer
	for _, v := range values {
		lines.WriteString(base64.StdEncoding.EncodeToString(v) + "\n")
	}
	args := append([]string{"-XX:TieredStopAtLevel=1", "-cp", classes + ":" + r.libs, "Decode", format, r.own}, message...)
	java := exec.CommandContext(t.Context(), "java", args...)
	var complaints bytes.Buffer
	java.Stdin, java.Stderr = &lines, &complaints
	out, err := java.Output()
	if err != nil {
		t.Fatalf("deserialize %s: %v: %.4000s", format, err, complaints.String())
	}
	return strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
}
