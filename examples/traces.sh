#!/usr/bin/env bash
# One trace over two languages: starts Jaeger, both example applications and a client, attaches
# `probescope otel`, and prints the trace of one request as a tree. It has the functions that took
# the time, and the lines that raised costly exceptions.
#
#   examples/traces.sh [--slow TIME] [--stay]
#
#   --slow TIME   the shortest call to show (1ms)
#   --stay        continues until Ctrl-C, so that you can look at Jaeger's pages
#
# Jaeger is a jaeger-all-in-one of version 1: JAEGER=/path/to/it, or one in PATH. bin/setup installs
# whatever else is missing. Everything runs on free ports and ends with this script. Needs root, or
# sudo to start the bridge. RUBY=/path/to/ruby and PYTHON=/path/to/python select others than those
# in PATH.
set -euo pipefail
examples=$(cd "$(dirname "$0")" && pwd)
root=${examples%/*}
export LANG=C.UTF-8 BUNDLE_SILENCE_ROOT_WARNING=1
ruby=${RUBY:-ruby}
python=${PYTHON:-python3}
slow=1ms
stay=''

help() { sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; }

# fail MESSAGE NEXT_STEP
fail() {
  printf 'traces: %s\n  try: %s\n' "$1" "$2" >&2
  exit "${3:-1}"
}

say() { echo "traces: $*"; }

while [ $# -gt 0 ]; do
  case $1 in
  -h | --help) help; exit ;;
  --slow) [ $# -gt 1 ] || fail "--slow needs a time" "--slow 5ms" 2; slow=$2; shift ;;
  --stay) stay=yes ;;
  *) fail "there is no option $1" "examples/traces.sh --help" 2 ;;
  esac
  shift
done

jaeger=${JAEGER:-$(command -v jaeger-all-in-one || command -v jaeger || true)}
if [ -z "$jaeger" ]; then
  case $(uname -m) in aarch64) cpu=arm64 ;; *) cpu=amd64 ;; esac
  release="jaeger-1.62.0-linux-$cpu"
  from="https://github.com/jaegertracing/jaeger/releases/download/v1.62.0"
  fail "Jaeger is not in PATH" "curl -fL $from/$release.tar.gz \
| tar -xz -C /tmp && JAEGER=/tmp/$release/jaeger-all-in-one $0"
fi
[ -x "$jaeger" ] || fail "JAEGER=$jaeger cannot be run" "JAEGER=/path/to/jaeger-all-in-one $0"
as_root=()
if [ "$(id -u)" != 0 ]; then
  sudo true 2>/dev/null ||
    fail "the bridge needs root, and sudo does not let you" "run it as root, or as a user who may use sudo"
  as_root=(sudo env "PATH=$PATH" "LANG=$LANG") # forwards signals
fi
packages=$root/vendor/python/$("$python" -c 'import platform; print(platform.python_version())')
# Whether everything is installed and compiled that bin/setup specs provides.
is_set_up() {
  [ -x "$packages/bin/gunicorn" ] &&
    (cd "$examples/rack_app" && "$ruby" -S bundle check) && (cd "$root" && "$ruby" -S bundle check) &&
    PYTHONPATH=$root/python "$python" -c 'import probescope, sys
sys.exit(probescope.unavailable_reason())' &&
    "$ruby" -I "$root/lib" -e 'require "probescope"; abort unless Probescope.available?'
}
if ! is_set_up >/dev/null 2>&1; then
  say "installing and compiling what is missing: bin/setup specs"
  "$root/bin/setup" specs
  log=$(is_set_up 2>&1) || fail "something is still missing${log:+: $log}" "bin/setup specs"
fi
logs=$(mktemp -d)
started=()
# Ends the last process first: the bridge leaves before its traced processes end.
clean() {
  for ((i = ${#started[@]} - 1; i >= 0; i--)); do
    kill "${started[i]}" 2>/dev/null || true
    wait "${started[i]}" 2>/dev/null || true
  done
  rm -rf "$logs"
}
trap clean EXIT
trap 'exit 130' INT TERM

# start NAME COMMAND...
start() {
  local name=$1
  shift
  "$@" >"$logs/$name" 2>&1 &
  started+=($!)
}

# await NAME COMMAND...: waits until the command succeeds. The process NAME must live meanwhile.
await() {
  local name=$1 pid=${started[-1]}
  shift
  for ((i = 0; i < 600; i++)); do
    if "$@" >/dev/null 2>&1; then return; fi
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.1
  done
  tail -n 5 "$logs/$name" >&2
  fail "$name did not start" "read its output above"
}

answers() { "$ruby" -rnet/http -e 'exit Net::HTTP.get_response(URI(ARGV[0])).is_a?(Net::HTTPOK)' "$1"; }
free_ports() {
  "$ruby" -rsocket -e '
    servers = Array.new(ARGV[0].to_i) { TCPServer.new("127.0.0.1", 0) }
    puts servers.map { |one| one.addr[1] }' "$1"
}

mapfile -t ports < <(free_ports 9)
otlp=http://127.0.0.1:${ports[0]}
query=http://127.0.0.1:${ports[1]}
desk=http://127.0.0.1:${ports[2]}
second=http://127.0.0.1:${ports[3]}

say "starting Jaeger: $query"
start jaeger env COLLECTOR_OTLP_ENABLED=true "$jaeger" --log-level=error \
  --collector.otlp.http.host-port="${otlp#http://}" \
  --query.http-server.host-port="${query#http://}" --query.grpc-server.host-port="127.0.0.1:${ports[4]}" \
  --collector.otlp.grpc.host-port="127.0.0.1:${ports[5]}" \
  --collector.grpc-server.host-port="127.0.0.1:${ports[6]}" \
  --collector.http-server.host-port="127.0.0.1:${ports[7]}" --admin.http.host-port="127.0.0.1:${ports[8]}"
await jaeger answers "$query/api/services"

export OTEL_EXPORTER_OTLP_ENDPOINT=$otlp OTEL_BSP_SCHEDULE_DELAY=500
say "starting the freight desk in Python: $second"
cd "$examples/flask_app"
PORT=${ports[3]} PYTHONPATH=$root/python start flask_app "$packages/bin/gunicorn"
await flask_app answers "$second/"
flask=${started[-1]}
say "starting the freight desk in Ruby, which asks it: $desk"
cd "$examples/rack_app"
PORT=${ports[2]} SECOND_DESK=$second start rack_app "$ruby" -S bundle exec puma -C config/puma.rb
await rack_app answers "$desk/"
rack=${started[-1]}
# Sends one request a second, with 12 nested containers and 2,000 goods. A process reports at most
# ten exceptions of a line a second, so those of each request are reported.
# shellcheck disable=SC2016 # that is Ruby's
start client "$ruby" -rnet/http -e '
  containers = (1..12).map { |i| "(container C-#{i} " }.join
  goods = (1..2000).map { |i| "good-#{i} #{i % 90}" }.join(" ")
  manifest = "#{containers}#{goods}#{")" * 12}"
  loop { sleep 1 if Net::HTTP.post(URI(ARGV[0]), manifest, "Content-Type" => "text/plain") }
' "$desk/manifests"

say "attaching: probescope otel -p $rack -p $flask --workers --slow $slow --endpoint $otlp"
cd "$root"
start bridge "${as_root[@]}" "$ruby" -S bundle exec "$ruby" exe/probescope otel -p "$rack" -p "$flask" \
  --workers --slow "$slow" --endpoint "$otlp"
await bridge grep -q 'attached to' "$logs/bridge"
say "waiting for a request that both have told of"
"$ruby" examples/trace_tree.rb "$query" || {
  tail -n 5 "$logs/bridge" >&2
  fail "no trace with functions of both arrived" "read the output of the bridge above"
}
if [ -n "$stay" ]; then
  say "all of them are at $query; Ctrl-C ends it"
  wait
fi
