// Package docs holds the project's pages and the description of the HTTP API, so that a running relay can serve those
// of its own version. It does nothing with them.
//
// Tested by package handbook, which serves every page.
package docs

import "embed"

// Files are the pages, their pictures and openapi.yaml, by their path below docs.
//
//go:embed *.md */*.md images/*.png openapi.yaml
var Files embed.FS
