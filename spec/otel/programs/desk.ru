# frozen_string_literal: true

# An application without OpenTelemetry for spec/otel/desks_spec.rb. desk.py is the Python version.
require "probescope"
require "sinatra/base"

class Desk < Sinatra::Base
  set :environment, :production

  get("/") { "ready" }

  get "/orders/:id" do |id|
    look(id)
    id
  end

  post("/orders") { refuse }

  def look(id)
    sleep(0.005)
    Integer("order #{id}")
  rescue ArgumentError
    nil
  end

  def refuse = raise(KeyError, "there is no such article")
end

use Probescope::Rack
run Desk
