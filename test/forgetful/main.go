// Command forgetful mounts a directory so that a crash can be played: what was written and not synced lies in the
// memory of this process, and is gone when the process is. It is for databases: they promise what they have synced.
//
//	forgetful DIRECTORY MOUNTPOINT
//
// It prints "mounted" when the mount can be used. SIGINT is the crash: it says on standard output how much is
// forgotten and ends. SIGTERM writes everything down first. Linux only, as root.
//
// What a file holds is durable from fsync or fdatasync on. Names, sizes that shrink and modes are durable at once: a
// file system with a journal keeps their order, and databases sync directories where it matters to them.
//
// The rest of it is tested by the crashes that are played on it (test, TestCrashesThatForget…).
package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "forgetful DIRECTORY MOUNTPOINT")
		os.Exit(2)
	}
	if err := serve(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "forgetful:", err)
		os.Exit(1)
	}
}

func serve(directory, mountpoint string) error {
	var at syscall.Stat_t
	if err := syscall.Stat(directory, &at); err != nil {
		return fmt.Errorf("look at %s: %w", directory, err)
	}
	held := &memory{files: map[uint64]*file{}}
	root := &node{memory: held}
	root.RootData = &fs.LoopbackRoot{Path: directory, Dev: at.Dev, RootNode: root}
	none := time.Duration(0) // the kernel asks again: what it remembered would survive the crash
	server, err := fs.Mount(mountpoint, root, &fs.Options{
		EntryTimeout: &none, AttrTimeout: &none,
		MountOptions: fuse.MountOptions{
			AllowOther: true, DirectMountStrict: true, FsName: "forgetful", Name: "forgetful",
			Options: []string{"default_permissions"},
		},
	})
	if err != nil {
		return fmt.Errorf("mount %s: %w", mountpoint, err)
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	fmt.Println("mounted")
	if <-signals == syscall.SIGINT {
		pages, files := held.dirty()
		fmt.Printf("forgot %d pages of %d files\n", pages, files)
		os.Exit(0)
	}
	if err := held.sync(); err != nil {
		return err
	}
	if err := server.Unmount(); err != nil {
		return fmt.Errorf("unmount %s: %w", mountpoint, err)
	}
	return nil
}
