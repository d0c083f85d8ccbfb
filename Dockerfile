# The host's side of probescope: the command, the bridge `probescope otel`, and bpftrace. What is
# traced lies in other containers.
#
#   docker build -t probescope .
#   docker run --rm --pid=host --cap-drop ALL --cap-add SYS_ADMIN --cap-add SYS_PTRACE \
#     --cap-add DAC_READ_SEARCH --cap-add SETUID --cap-add SETGID --cap-add KILL \
#     --security-opt apparmor=unconfined -v /sys/kernel/tracing:/sys/kernel/tracing:ro \
#     -e OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4318 \
#     probescope otel --comm puma --workers --slow 50ms
#
# The steps are tried without Docker by `.ci/image`.
FROM debian:trixie-slim AS build
RUN apt-get update && apt-get install --yes --no-install-recommends \
    build-essential ruby ruby-dev ruby-bundler ca-certificates
WORKDIR /src
COPY . .
# The gems of the bridge are those of packaging/image/Gemfile.lock.
RUN gem build --quiet --output probescope.gem probescope.gemspec && \
    gem install --no-document --local --install-dir /opt/probescope probescope.gem && \
    BUNDLE_GEMFILE=packaging/image/Gemfile BUNDLE_FROZEN=true BUNDLE_PATH=/opt/bundle \
    bundle install --quiet && \
    cp -r /opt/bundle/ruby/*/. /opt/probescope && rm -rf /opt/probescope/cache

FROM debian:trixie-slim
RUN apt-get update && apt-get install --yes --no-install-recommends bpftrace ca-certificates ruby && \
    apt-get clean && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/probescope /opt/probescope
ENV GEM_PATH=/opt/probescope: LANG=C.UTF-8
# As root, because bpftrace before 0.25 wants that: what root may is given with the capabilities.
# What exports becomes nobody.
ENTRYPOINT ["/opt/probescope/bin/probescope"]
CMD ["doctor"]
