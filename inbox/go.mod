module github.com/cdc-relay/cdc-relay/inbox

go 1.26.0
