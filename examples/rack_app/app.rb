# frozen_string_literal: true

require "json"
require "net/http"
require "sinatra/base"
require_relative "lib/checksum"
require_relative "lib/manifest"

# The front desk of a freight terminal: hauliers hand in what they bring and fetch labels for it.
#
#   POST /manifests      text/plain as in lib/manifest.rb -> its contents, as JSON
#   GET /labels/NUMBER   -> the label of a container, with its checksum
#
# SECOND_DESK=http://127.0.0.1:9293 sends each manifest to another desk, examples/flask_app, too.
# FIXED=parser, FIXED=checksum or FIXED=parser,checksum fixes the mistakes in lib/.
class FreightDesk < Sinatra::Base
  SECOND_DESK = ENV["SECOND_DESK"]&.then { |desk| URI("#{desk}/manifests") }
  PORTS = %w[Antwerp Bilbao Cork Danzig Esbjerg Felixstowe Genoa Hamburg].freeze

  fixed = ENV.fetch("FIXED", "").split(",")
  set :source, fixed.include?("parser") ? Manifest::CarefulSource : Manifest::Source
  set :checksum, fixed.include?("checksum") ? FastChecksum.new : Checksum.new

  get "/" do
    content_type :text
    "freight desk, process #{Process.pid}: POST /manifests, GET /labels/NUMBER\n"
  end

  post "/manifests" do
    halt 415, "a manifest is text/plain\n" unless request.media_type == "text/plain"

    text = request.body.read
    unit = Manifest.new(settings.source).parse(text)
    second_look(text) if SECOND_DESK
    json(kind: unit.kind, name: unit.name, kilograms: unit.weight, items: unit.items, levels: unit.levels)
  end

  get %r{/labels/(\d+)} do |number|
    body = label(number.to_i)
    json(number: number.to_i, label: body, checksum: format("%08x", settings.checksum.of(body)))
  end

  error Manifest::Invalid do |invalid|
    status 422
    json(error: invalid.message)
  end

  private

  def second_look(text) = Net::HTTP.post(SECOND_DESK, text, "Content-Type" => "text/plain").value

  def json(answer)
    content_type :json
    JSON.generate(answer)
  end

  # Text of a label: the destination, and a line for each item.
  def label(number)
    lines = Array.new(300) { |i| "SKU-#{number}-#{i} #{((number * 31) + (i * 17)) % 900} kg\n" }
    "#{PORTS[number % PORTS.size]}\n#{lines.join}"
  end
end
