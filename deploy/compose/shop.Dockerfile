# syntax=docker/dockerfile:1
# The example order-payment: docker build --file deploy/compose/shop.Dockerfile .
FROM rust:1.95-alpine AS build
WORKDIR /source
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/source/target \
    cargo build --locked --profile dist --package order-payment \
    && install -D target/dist/order-payment /image/usr/bin/order-payment

FROM scratch
COPY --from=build /image /
USER 65532:65532
ENTRYPOINT ["/usr/bin/order-payment"]
