# frozen_string_literal: true

# A Rails application of ordinary width: 75 pages, each with its own controller.
require "bundler/setup"
require "rails"
require "action_controller/railtie"
Bundler.require

class Shop < Rails::Application
  config.load_defaults(Rails.version.to_f)
  config.eager_load = true
  config.secret_key_base = "x" * 64
  config.consider_all_requests_local = false
  config.logger = Logger.new(nil)
  config.hosts.clear
end

PAGES = Array.new(75) { |i| "page#{i}" }
PAGES.each do |page|
  controller = Class.new(ActionController::Base)
  Object.const_set("#{page.capitalize}Controller", controller)
  controller.class_eval(<<~RUBY, "/srv/shop/app/controllers/#{page}_controller.rb", 1)
    def show
      @rows = Array.new(20) { |n| {name: "#{page} \#{n}", price: n * 1.5} }
      render inline: "<% @rows.each do |row| %><li><%= row[:name] %> " \\
                     "<%= number_to_currency(row[:price]) %></li><% end %>"
    end
  RUBY
end

Shop.initialize!
Shop.routes.draw { PAGES.each { |page| get "#{page}/:id", to: "#{page}#show" } }
run Shop
