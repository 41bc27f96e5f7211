package directory

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	extension   = ".yaml"
	largestFile = 1 << 20 // bytes
	longestName = 100     // bytes: it is the value of a label
)

// content holds what a look finds in a file. Its zero value is that of a file that is not there.
type content struct {
	sum  [sha256.Size]byte
	text []byte
	err  error // why it cannot be read
}

func (c content) absent() bool { return c.sum == [sha256.Size]byte{} }

func (d *Directory) path(name string) string { return filepath.Join(d.o.Path, name+extension) }

// read looks at the files, by the names of their relays. In a volume of Kubernetes they are links into a folder that is
// replaced as a whole; its name begins with two dots, and hidden files are left out.
func (d *Directory) read() (map[string]content, error) {
	entries, err := os.ReadDir(d.o.Path)
	if err != nil {
		return nil, fmt.Errorf("read the directory of --config-dir: %w", err)
	}
	found := map[string]content{}
	for _, entry := range entries {
		name, is := strings.CutSuffix(entry.Name(), extension)
		if !is || strings.HasPrefix(name, ".") || entry.IsDir() {
			continue
		}
		text, err := readFile(d.path(name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // it went since, or is a link to nothing
		}
		c := content{text: text, err: err, sum: sha256.Sum256(text)}
		if err != nil {
			c.sum = sha256.Sum256([]byte(err.Error()))
		}
		found[name] = c
	}
	return found, nil
}

func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > largestFile {
		return nil, fmt.Errorf("%s is not a file of at most %d bytes", path, largestFile)
	}
	return os.ReadFile(path)
}

// checkName refuses a name that people could not read or write.
func checkName(name string) error {
	odd := func(r rune) bool { return !unicode.IsPrint(r) }
	if name == "" || len(name) > longestName || !utf8.ValidString(name) || strings.ContainsFunc(name, odd) {
		return fmt.Errorf("the file's name is the relay's: want 1 to %d bytes of UTF-8 that can be printed before .yaml",
			longestName)
	}
	return nil
}
