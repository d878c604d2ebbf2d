# An image with gorun and one program, both linked statically: no shell, no package, no root.
#
#   docker build --build-arg PROGRAM=./examples/pi -t registry.example/pi:1 .
#
# make release does it with the version of the release, which gorun version prints: --build-arg VERSION=v0.1.0.
#
# The program is /usr/local/bin/NAME, after the last element of PROGRAM. docs/kubernetes.md goes on from here. Pods of
# one job must have one image: name it by a tag that is not moved, or by its digest.

FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG PROGRAM=./examples/pi
ARG VERSION=
ENV CGO_ENABLED=0
RUN go build -trimpath -buildvcs=false -ldflags="-s -X main.release=$VERSION" -o /out/ ./cmd/gorun "$PROGRAM"

FROM gcr.io/distroless/static-debian12:nonroot
COPY --from=build /out/ /usr/local/bin/
# The number, not the name: the kubelet cannot see of a name that it is not root.
USER 65532:65532
WORKDIR /tmp
ENTRYPOINT ["/usr/local/bin/gorun"]
