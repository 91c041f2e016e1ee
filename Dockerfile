FROM --platform=$BUILDPLATFORM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG TARGETOS TARGETARCH VERSION=dev
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -buildvcs=false -ldflags "-s -w -X main.version=$VERSION" -o /butler-ipam ./cmd/butler-ipam

FROM scratch
COPY --from=build /butler-ipam /butler-ipam
USER 65532:65532
ENTRYPOINT ["/butler-ipam"]
