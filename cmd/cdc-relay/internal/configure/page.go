package configure

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/cdc-relay/cdc-relay/config"
)

// page is a configuration file that is being written.
type page struct {
	values map[string]string   // by key, as the file has them
	above  map[string][]string // comments, by the key that they stand above
	todo   []string            // what a person has to look at; each a sentence without its end
}

func newPage() *page { return &page{values: map[string]string{}, above: map[string][]string{}} }

// set gives a key its value, with comments above it.
func (p *page) set(key, value string, comments ...string) {
	p.values[key] = value
	p.above[key] = append(p.above[key], comments...)
}

// remember adds something to do.
func (p *page) remember(format string, arguments ...any) {
	p.todo = append(p.todo, oneLine(fmt.Sprintf(format, arguments...)))
}

// text is the file: what it is, what is to be done, the keys in the order of the documentation.
func (p *page) text(head []string) string {
	var b strings.Builder
	for _, line := range head {
		b.WriteString(comment("", line))
	}
	if len(p.todo) > 0 {
		b.WriteString("#\n# To do:\n")
	}
	for _, one := range p.todo {
		b.WriteString(comment("", "- "+one))
	}
	b.WriteString("\n")
	var open []string // sections
	for _, key := range config.Keys() {
		value, is := p.values[key.Name]
		if !is {
			continue
		}
		path := strings.Split(key.Name, ".")
		last := len(path) - 1
		same := 0
		for same < min(len(open), last) && open[same] == path[same] {
			same++
		}
		for depth := same; depth < last; depth++ {
			fmt.Fprintf(&b, "%s%s:\n", strings.Repeat("  ", depth), path[depth])
		}
		open = path[:last]
		indent := strings.Repeat("  ", last)
		for _, line := range p.above[key.Name] {
			b.WriteString(comment(indent, line))
		}
		fmt.Fprintf(&b, "%s%s: %s\n", indent, path[last], value)
	}
	return b.String()
}

// comment is a line of one; what comes from a database stays in it.
func comment(indent, line string) string {
	return strings.TrimRight(indent+"# "+oneLine(line), " ") + "\n"
}

// oneLine keeps a text from becoming lines of the file.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// unquoted are texts that YAML reads as they are.
var unquoted = regexp.MustCompile(`^[A-Za-z0-9_/][A-Za-z0-9_./@:?=&%+-]*[A-Za-z0-9_/]$|^[A-Za-z0-9_]$`)

// quote is a text as the file has it; $ begins a variable there.
func quote(text string) string {
	text = strings.ReplaceAll(text, "$", "$$")
	if unquoted.MatchString(text) && text != "null" {
		return text
	}
	return strconv.Quote(text)
}
