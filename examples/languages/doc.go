// Package languages has consumers in other languages, to copy: Python, Node, Java. The inbox's functions in SQL are the
// contract. Tested in languages_test.go, each on a real Postgres.
package languages
