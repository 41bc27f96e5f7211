// Package docs embeds the documentation and openapi.yaml, so that a relay serves the pages of its own version. Pages
// in docs/lab (measurements and their history) are not embedded.
//
// Tested by package handbook, which serves every page.
package docs

import "embed"

// Files holds the pages, their images and openapi.yaml, by path below docs.
//
//go:embed *.md brokers/*.md cloud/*.md releases/*.md runbooks/*.md images/*.png openapi.yaml
var Files embed.FS
