package harness

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// kafkaTools are the classes of Kafka's command line tools, by the names of their scripts.
var kafkaTools = map[string]string{
	"kafka-topics.sh":  "org.apache.kafka.tools.TopicCommand",
	"kafka-acls.sh":    "org.apache.kafka.tools.AclCommand",
	"kafka-configs.sh": "kafka.admin.ConfigCommand",
}

// KafkaTool runs a command of Kafka's own tools in a folder, as a shell does: a script's name and its options.
func KafkaTool(t testing.TB, dir, command string) (out string, err error) {
	t.Helper()
	java, classpath := KafkaPrograms(t)
	jars, err := fromMaven(t.Context(), "kafka-tools-"+kafkaVersion, "kafkatools", copyJars(""))
	if err != nil {
		missing(t, "Kafka's command line tools", err)
	}
	script, options, _ := strings.Cut(command, " ")
	shell := exec.CommandContext(t.Context(), "sh", "-c", `exec "$0" -cp "$1" "$2" `+options, java,
		classpath+":"+filepath.Join(jars, "*"), kafkaTools[script])
	shell.Dir = dir
	said, err := shell.CombinedOutput()
	return string(said), err
}
