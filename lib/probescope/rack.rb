# frozen_string_literal: true

require_relative "../probescope"

module Probescope
  # Rack middleware that tells tracers of requests: `use Probescope::Rack`, as far outside as it can be. Rails has it by itself.
  # While no tracer listens it asks one question of C and calls the application.
  #
  # What it does of its own raises nothing: it looks at what it is given before it takes it for a String or an Array. There is no
  # rescue in it, for that could swallow what other threads send (Timeout, Thread#raise).
  class Rack
    # In the env of a request that is told of already; an application's own word for what its route is.
    KEY = "probescope.request"
    ROUTE = "probescope.route"

    # Where there are no probes.
    module Nobody
      def self.requests? = false
    end

    def initialize(app)
      @app = app
      Probescope.install
      @native = Probescope.available? ? Native : Nobody
    end

    def call(env)
      @native.requests? && !env[KEY] ? traced(env) : @app.call(env)
    end

    # The route template that the framework left in the env, or nil.
    def self.template(env)
      own, rails, sinatra = env.values_at(ROUTE, "action_dispatch.route_uri_pattern", "sinatra.route")
      return own if own.is_a?(String)
      return rails.b.delete_suffix("(.:format)") if rails.is_a?(String)
      return sinatra.b.split(" ", 2).last&.gsub("\\/", "/") if sinatra.is_a?(String)

      rails_action(env["action_dispatch.request.path_parameters"])
    end

    # Rails before 7.1 says no more.
    def self.rails_action(parameters)
      controller, action = parameters.values_at(:controller, :action) if parameters.is_a?(Hash)
      "#{controller}##{action}" if controller.is_a?(String) && action.is_a?(String)
    end
    private_class_method :rails_action

    # The body of an answer. The request lasts until it is closed, and is the current one while the server reads it.
    class Body
      def initialize(body, request, status, template)
        @body = body
        @request = request
        @status = status
        @template = template
      end

      def close
        within { @body.close if @body.respond_to?(:close) }
      ensure
        @request.done(@status, @template)
      end

      def respond_to_missing?(name, include_all = false) = @body.respond_to?(name, include_all)

      # each, call, to_path, to_ary: what the body can do, it can do.
      def method_missing(name, ...)
        within { @body.public_send(name, ...) }
      ensure
        @request.done(@status, @template) if name == :to_ary # it closes the body
      end

      private

      def within
        outer = Native.enter_request(@request)
        yield
      ensure
        Native.enter_request(outer)
      end
    end

    private

    def traced(env)
      request = env[KEY] = Native::Request.start(env["REQUEST_METHOD"], path(env), env["HTTP_TRACEPARENT"], env["rack.url_scheme"])
      outer = Native.enter_request(request)
      before = $! # rubocop:disable Style/SpecialGlobalVars
      begin
        response = @app.call(env)
      ensure
        Native.enter_request(outer)
        # It was left by an exception, or by throw.
        request.done($!.equal?(before) ? 0 : 500, Rack.template(env)) unless response # rubocop:disable Style/SpecialGlobalVars
      end
      answer(env, request, response)
    end

    def path(env)
      prefix, path = env.values_at("SCRIPT_NAME", "PATH_INFO")
      prefix.is_a?(String) && path.is_a?(String) && !prefix.empty? ? prefix.b << path.b : path
    end

    # An Array has nothing to close, and servers treat it in a way of its own; a connection that was taken over has no answer.
    def answer(env, request, response)
      status, headers, body = response if response.is_a?(Array)
      status = status.to_i if status.is_a?(String)
      if body.nil? || body.is_a?(Array) || response.size != 3 || env["rack.hijack_io"]
        request.done(status, Rack.template(env))
        response
      else
        [response.first, headers, Body.new(body, request, status, Rack.template(env))]
      end
    end
  end
end
