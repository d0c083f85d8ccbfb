# frozen_string_literal: true

# Rails as in production, in one file. Only the Gemfile names probescope.
require "bundler/setup"
require "bootsnap"
Bootsnap.setup(cache_dir: File.join(ENV.fetch("CACHE"), "bootsnap"), development_mode: false,
               load_path_cache: true, compile_cache_iseq: true, compile_cache_yaml: false)
require "rails"
require "action_controller/railtie"
require "grape"
require "sinatra/base"
Bundler.require

class Shop < Rails::Application
  config.load_defaults(Rails.version.to_f)
  config.eager_load = true
  config.secret_key_base = "x" * 64
  config.consider_all_requests_local = false
  config.action_dispatch.show_exceptions = :all
  config.logger = Logger.new(nil)
  config.hosts.clear
  # A route shows errors. It is not the route that failed.
  config.exceptions_app = routes
end

class OrdersController < ActionController::Base
  skip_forgery_protection

  def show
    number = params[:id].to_i
    raise "no such order" if (number % 11).zero?

    (number % 7).zero? ? head(:not_found) : render(json: {id: number})
  end

  def index
    self.response_body = Enumerator.new { |rows| 3.times { |i| sleep(0.002) && rows << "row #{i}\n" } }
  end

  def create = head(:service_unavailable)
  def nap = sleep(params[:ms].to_i / 1000.0) && head(:ok)
  def error = head(request.path_info[1, 3].to_i)
end

module Desk
  class Engine < Rails::Engine
    # An engine in its own gem has its own root. This one uses the application's.
    def self.find_root(_from) = Rails.root
    isolate_namespace Desk
  end

  class ThingsController < ActionController::Base
    def show = render(plain: params[:name])
  end
end

class Api < Grape::API
  format :json
  get("things/:name") { {name: params[:name]} }
end

class Old < Sinatra::Base
  get("/things/:name") { params[:name] }
end

Shop.initialize!
Desk::Engine.routes.draw { get "things/:name", to: "things#show" }
Shop.routes.draw do
  resources :orders, only: %i[show index create]
  get "naps/:ms", to: "orders#nap"
  get "moved/:id", to: redirect("/orders")
  mount Desk::Engine => "/desk"
  mount Api => "/api"
  mount Old => "/old"
  mount ->(env) { [200, {}, [env["PATH_INFO"]]] } => "/rack"
  match "/:code", to: "orders#error", via: :all, constraints: {code: /404|500/}
end
run Shop
