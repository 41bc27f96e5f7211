# The image holds one static binary and the certificates of public authorities, nothing else: no shell, no package
# manager. It runs as an ordinary user and writes no file, so a read-only root file system is fine:
#   docker run --read-only --cap-drop ALL -v ./relay.yaml:/relay.yaml:ro cdc-relay run --config /relay.yaml
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=""
ARG COMMIT=""
# The build context has no .git, so the version comes from the arguments: --build-arg VERSION=v1.2.3 --build-arg COMMIT=$(git rev-parse HEAD)
RUN CGO_ENABLED=0 go build -tags grpcnotrace -buildvcs=false -trimpath -ldflags "-s -w -X main.version=${VERSION} -X main.commit=${COMMIT}" \
    -o /out/cdc-relay ./cmd/cdc-relay

FROM scratch
ARG VERSION=""
ARG COMMIT=""
LABEL org.opencontainers.image.title="cdc-relay" \
      org.opencontainers.image.description="Streams a Postgres outbox table to Kafka" \
      org.opencontainers.image.source="https://github.com/cdc-relay/cdc-relay" \
      org.opencontainers.image.documentation="https://github.com/cdc-relay/cdc-relay/tree/main/docs" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${COMMIT}"
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /out/cdc-relay /cdc-relay
USER 65532:65532
# Inside a container the loopback address reaches nobody.
ENV CDC_RELAY_HTTP_LISTEN=:9464
EXPOSE 9464
ENTRYPOINT ["/cdc-relay"]
CMD ["run"]
