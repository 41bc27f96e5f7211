package main

import (
	"context"
	"path/filepath"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// node is a file or directory of the durable directory. What a file holds goes through its [file]; everything else is
// done to the durable directory at once.
type node struct {
	fs.LoopbackNode
	memory *memory
}

var (
	_ = fs.NodeWrapChilder((*node)(nil))
	_ = fs.NodeLookuper((*node)(nil))
	_ = fs.NodeCreater((*node)(nil))
	_ = fs.NodeOpener((*node)(nil))
	_ = fs.NodeGetattrer((*node)(nil))
	_ = fs.NodeSetattrer((*node)(nil))
	_ = fs.NodeUnlinker((*node)(nil))
	_ = fs.NodeFsyncer((*node)(nil))
)

// WrapChild makes the nodes that the library makes ours.
func (n *node) WrapChild(_ context.Context, made fs.InodeEmbedder) fs.InodeEmbedder {
	child := &node{memory: n.memory}
	child.RootData = made.(*fs.LoopbackNode).RootData
	return child
}

// path is that of the durable file.
func (n *node) path() string { return filepath.Join(n.RootData.Path, n.Path(n.Root())) }

// Lookup tells the size that is seen, not the durable one.
func (n *node) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	inode, errno := n.LoopbackNode.Lookup(ctx, name, out)
	if errno == fs.OK {
		n.memory.correct(&out.Attr)
	}
	return inode, errno
}

// Getattr tells the size that is seen.
func (n *node) Getattr(ctx context.Context, f fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	if h, is := f.(*handle); is { // the file may have no name any more
		var at syscall.Stat_t
		if err := syscall.Fstat(h.file.fd, &at); err != nil {
			return fs.ToErrno(err)
		}
		out.FromStat(&at)
	} else if errno := n.LoopbackNode.Getattr(ctx, nil, out); errno != fs.OK {
		return errno
	}
	n.memory.correct(&out.Attr)
	return fs.OK
}

// Setattr changes the durable file at once, its size, too.
func (n *node) Setattr(ctx context.Context, f fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	if errno := n.LoopbackNode.Setattr(ctx, nil, in, out); errno != fs.OK {
		return errno
	}
	if size, changed := in.GetSize(); changed {
		if known := n.memory.known(out.Ino); known != nil {
			known.cut(int64(size))
		}
	}
	n.memory.correct(&out.Attr)
	return fs.OK
}

// Unlink forgets what a file without a name had.
func (n *node) Unlink(ctx context.Context, name string) syscall.Errno {
	var at syscall.Stat_t
	err := syscall.Lstat(filepath.Join(n.path(), name), &at)
	errno := n.LoopbackNode.Unlink(ctx, name)
	if errno == fs.OK && err == nil && at.Nlink == 1 {
		n.memory.gone(at.Ino)
	}
	return errno
}

// Open opens the file as it is seen.
func (n *node) Open(_ context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	var at syscall.Stat_t
	path := n.path()
	if err := syscall.Lstat(path, &at); err != nil {
		return nil, 0, fs.ToErrno(err)
	}
	known, err := n.memory.of(at.Ino, both(path))
	if err != nil {
		return nil, 0, fs.ToErrno(err)
	}
	return &handle{known, flags&syscall.O_DSYNC != 0}, fuse.FOPEN_DIRECT_IO, fs.OK
}

// both opens a durable file for both directions.
func both(path string) func() (fd int, err error) {
	return func() (int, error) { return syscall.Open(path, syscall.O_RDWR|syscall.O_CLOEXEC, 0) }
}

// Create makes the file, empty and durable.
func (n *node) Create(ctx context.Context, name string, flags, mode uint32, out *fuse.EntryOut) (
	*fs.Inode, fs.FileHandle, uint32, syscall.Errno,
) {
	inode, made, _, errno := n.LoopbackNode.Create(ctx, name, flags, mode, out)
	if errno != fs.OK {
		return nil, nil, 0, errno
	}
	if r, is := made.(fs.FileReleaser); is {
		defer r.Release(ctx)
	}
	path := filepath.Join(n.path(), name)
	known, err := n.memory.of(out.Ino, both(path))
	if err != nil {
		return nil, nil, 0, fs.ToErrno(err)
	}
	return inode, &handle{known, flags&syscall.O_DSYNC != 0}, fuse.FOPEN_DIRECT_IO, fs.OK
}

// Fsync makes a file durable; a directory is always.
func (n *node) Fsync(_ context.Context, f fs.FileHandle, _ uint32) syscall.Errno {
	if h, is := f.(*handle); is {
		return fs.ToErrno(h.file.sync())
	}
	return fs.OK
}

// correct gives the attributes of a durable file the size that is seen.
func (m *memory) correct(a *fuse.Attr) {
	if known := m.known(a.Ino); known != nil {
		a.Size = known.size(a.Size)
	}
}

// handle is an open file.
type handle struct {
	file   *file
	synced bool // each write is durable: O_SYNC or O_DSYNC
}

var (
	_ = fs.FileReader((*handle)(nil))
	_ = fs.FileWriter((*handle)(nil))
)

// Read implements [fs.FileReader].
func (h *handle) Read(_ context.Context, into []byte, at int64) (fuse.ReadResult, syscall.Errno) {
	n, err := h.file.read(into, at)
	return fuse.ReadResultData(into[:n]), fs.ToErrno(err)
}

// Write implements [fs.FileWriter].
func (h *handle) Write(_ context.Context, data []byte, at int64) (uint32, syscall.Errno) {
	err := h.file.write(data, at)
	if err == nil && h.synced {
		err = h.file.sync()
	}
	if err != nil {
		return 0, fs.ToErrno(err)
	}
	return uint32(len(data)), fs.OK
}
