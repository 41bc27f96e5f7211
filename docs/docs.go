// Package docs holds the project's pages, so that a running relay can serve those of its own version. It does nothing
// with them.
//
// Tested by package handbook, which serves every page.
package docs

import "embed"

// Files are the pages and their pictures, by their path below docs.
//
//go:embed *.md */*.md images/*.png
var Files embed.FS
