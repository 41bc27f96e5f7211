package embedded

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/cdc-relay/cdc-relay/test/embedded/child"
)

// account is the user a server runs as when this process is root.
type account struct {
	name     string
	uid, gid uint32
}

// serverAccount is nil unless this process is root.
func serverAccount() (*account, error) {
	if uid := os.Geteuid(); uid != 0 {
		// initdb asks for the name of its user and gives up without one.
		if _, err := user.LookupId(strconv.Itoa(uid)); err != nil {
			return nil, fmt.Errorf("user %d has no entry in /etc/passwd, and initdb needs one: add it, or run as another "+
				"user: %w", uid, err)
		}
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		found, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, errUID := strconv.ParseUint(found.Uid, 10, 32)
		gid, errGID := strconv.ParseUint(found.Gid, 10, 32)
		if errUID == nil && errGID == nil && uid != 0 {
			return &account{name: name, uid: uint32(uid), gid: uint32(gid)}, nil
		}
	}
	return nil, fmt.Errorf("this process is root, Postgres refuses to run as root, and there is neither a user postgres " +
		"nor a user nobody")
}

// own gives a file or directory to the account and makes sure that it can get there.
func (a *account) own(path string) error {
	if a == nil {
		return nil
	}
	if err := os.Chown(path, int(a.uid), int(a.gid)); err != nil {
		return fmt.Errorf("give %s to user %s: %w", path, a.name, err)
	}
	return a.reaches(path)
}

// reaches checks that the account may pass through every directory above path.
func (a *account) reaches(path string) error {
	if a == nil {
		return nil
	}
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return fmt.Errorf("look at %s: %w", dir, err)
		}
		stat, ok := info.Sys().(*syscall.Stat_t)
		mine := ok && stat.Uid == a.uid && info.Mode()&0o100 != 0
		ours := ok && stat.Gid == a.gid && info.Mode()&0o010 != 0
		if !mine && !ours && info.Mode()&0o001 == 0 {
			return fmt.Errorf("user %s, whom Postgres runs as, cannot enter %s on the way to %s: choose another directory "+
				"(root's home does not do)", a.name, dir, path)
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
	}
}

func (a *account) child() *child.Account {
	if a == nil {
		return nil
	}
	return &child.Account{UID: a.uid, GID: a.gid}
}
