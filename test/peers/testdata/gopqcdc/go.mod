module github.com/cdc-relay/cdc-relay/test/peers/gopqcdc

go 1.26.0

require (
	github.com/Trendyol/go-pq-cdc v1.10.12
	github.com/Trendyol/go-pq-cdc-kafka v1.3.1
	github.com/segmentio/kafka-go v0.4.51
)
