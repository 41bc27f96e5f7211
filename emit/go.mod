module github.com/cdc-relay/cdc-relay/emit

go 1.26.0
