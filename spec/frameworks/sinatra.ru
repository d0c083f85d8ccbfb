# frozen_string_literal: true

# Sinatra with checks of Rack's rules on both sides of the middleware.
require "bundler/setup"
require "bootsnap"
Bootsnap.setup(cache_dir: File.join(ENV.fetch("CACHE"), "bootsnap"), development_mode: false,
               load_path_cache: true, compile_cache_iseq: true, compile_cache_yaml: false)
require "sinatra/base"
require "rack/lint"
Bundler.require

class Rows
  def each = 3.times { |i| sleep(0.002) && yield("row #{i}\n") }
end

class Shop < Sinatra::Base
  set :show_exceptions, false
  set :raise_errors, false
  set :host_authorization, {permitted_hosts: []}

  get "/orders/:id" do |id|
    raise "no such order" if (id.to_i % 11).zero?

    (id.to_i % 7).zero? ? halt(404) : id
  end
  get("/orders") { Rows.new }
  post("/orders") { halt 503 }
  get("/naps/:ms") { |ms| sleep(ms.to_i / 1000.0) && "ok" }
end

# The other kind of body in Rack 3, and a hijacked connection.
CALLED = lambda do |_env|
  [200, {"content-type" => "text/plain"}, ->(stream) { stream.write("called") && stream.close }]
end
HIJACKED = lambda do |env|
  io = env["rack.hijack"].call
  io.write("HTTP/1.1 200 OK\r\ncontent-length: 8\r\nconnection: close\r\n\r\nhijacked")
  io.close
  [200, {}, []]
end

use Rack::Lint unless ENV["FALCON"] # Falcon's env fails its checks
use Probescope::Rack
use Rack::Lint unless ENV["FALCON"]
map("/called") { run CALLED }
map("/hijacked") { run HIJACKED }
run Shop
