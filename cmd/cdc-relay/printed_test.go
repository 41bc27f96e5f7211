package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// pasted names the test that pastes what a file prints, by the file or its folder; one that begins with a lower case
// letter says why there is none. cdc-relay's own commands are parsed by TestCommandsThatAreWrittenDownExist.
var pasted = map[string]string{
	"sink/kafka/remedy.go":             "test TestPrintedCommandsAreThoseOfKafkasTools",
	"sink/nats/learn.go":               "test/brokers TestPastedCommandsOfOtherBrokersFixWhatCheckFound",
	"internal/redisconn":               "test/brokers TestPastedCommandsOfOtherBrokersFixWhatCheckFound",
	"sink/rabbitmq":                    "test/logins TestSecuredRabbitMQ",
	"sink/aws/sqs.go":                  "sink/aws TestOnElasticMQ",
	"sink/aws/sns.go":                  "sink/aws TestSNSOnMoto",
	"sink/aws/eventbridge.go":          "sink/aws TestEventBridgeOnMoto",
	"internal/access/login":            "internal/access/login TestStatementThatIsNamedLetsTheRoleIn",
	"internal/doctor/check":            "cmd/cdc-relay TestPastedStatementsOfCheckFixWhatItFound",
	"internal/store/internal/db":       "cmd/cdc-relay TestPastedStatementsOfCheckFixWhatItFound",
	"internal/store/words.go":          "cmd/cdc-relay TestPastedStatementsOfCheckFixWhatItFound",
	"internal/store/internal/catalog":  "cmd/cdc-relay TestDryRunSQLWorksAsPrinted",
	"internal/run/halt/halt.go":        "relay TestPastedStatementsOfHaltsEndThem",
	"decoder/errors.go":                "relay TestPastedStatementsOfHaltsEndThem",
	"cmd/cdc-relay/internal/configure": "cmd/cdc-relay TestConfigInitNamesTheColumnThatATableLacks",
	"cmd/cdc-relay/internal/show":      "it has the place of a password, and of the application's role",
	"replication/standby.go":           "it has the place of the standbys",
	"internal/doctor/install/inbox":    "it runs them itself",
	"internal/bench":                   "it runs them itself",
}

// foreign matches the beginning of a command of another program, or of a statement.
var foreignCommand = regexp.MustCompile(`\b(kafka-[a-z]+\.sh|rabbitmq(?:ctl|admin)|redis-cli|` +
	`nats (?:stream|server|account)|aws [a-z]+ [a-z]+-|(?:ALTER|CREATE|DROP) (?:UNIQUE |LOGICAL )?[A-Z]{4,} |GRANT [A-Zr%])`)

// Break it catches: a command that the program prints, and that no test pastes.
func TestEveryPrintedCommandIsPasted(t *testing.T) {
	const root = "../.."
	used := map[string]bool{}
	for _, dir := range []string{"cmd", "config", "decoder", "internal", "relay", "replication", "sink"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			name := filepath.ToSlash(strings.TrimPrefix(path, root+"/"))
			for _, text := range textsOf(t, path) {
				if command := foreignCommand.FindString(text); command != "" {
					t.Logf("%s: %q", name, text)
					by, key := "", name
					for ; by == "" && key != "."; key = filepath.ToSlash(filepath.Dir(key)) {
						by = pasted[key]
						used[key] = used[key] || by != ""
					}
					if by == "" {
						t.Errorf("%s prints %q: which test pastes it?", name, text)
					}
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for key, by := range pasted {
		if !used[key] {
			t.Errorf("%s prints no command", key)
		}
		if pkg, test, is := strings.Cut(by, " Test"); is && !hasTest(t, filepath.Join(root, pkg), "Test"+test) {
			t.Errorf("%s: no such test", by)
		}
	}
}

// textsOf returns the texts of a Go file, each with the ones that are joined to it.
func textsOf(t *testing.T, path string) (texts []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var joined func(ast.Expr) string
	joined = func(e ast.Expr) string {
		switch e := e.(type) {
		case *ast.BasicLit:
			text, err := strconv.Unquote(e.Value)
			if err == nil && e.Kind == token.STRING {
				return text
			}
		case *ast.BinaryExpr:
			return joined(e.X) + joined(e.Y)
		}
		return "%s"
	}
	ast.Inspect(file, func(n ast.Node) bool {
		e, is := n.(ast.Expr)
		if !is {
			return true
		}
		switch e.(type) {
		case *ast.BasicLit, *ast.BinaryExpr:
			texts = append(texts, joined(e))
			return false
		}
		return true
	})
	return texts
}

func hasTest(t *testing.T, dir, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(files, func(file string) bool {
		text, err := os.ReadFile(file)
		return err == nil && strings.Contains(string(text), "func "+name+"(")
	})
}
